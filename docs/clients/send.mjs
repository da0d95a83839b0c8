#!/usr/bin/env node
// Sends one text: send.mjs NUMBER TEXT, with BASE_URL, API_KEY and API_TOKEN in the
// environment. Node 20 or newer.
//
// Prints the messageId and exits with 0; 1: not sent; 2: called wrongly; 3: nobody
// knows whether it was sent. Optional: IDEMPOTENCY_KEY, ATTEMPTS (5), and in seconds
// MAX_WAIT between two attempts (60) and TIMEOUT of one (60).
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

const { BASE_URL, API_KEY, API_TOKEN, IDEMPOTENCY_KEY, ATTEMPTS = 5, MAX_WAIT = 60 } = process.env
const TIMEOUT = process.env.TIMEOUT ?? 60 // longer than the longest options.delay you use

class NotSent extends Error {} // certainly not sent
class Unknown extends Error {} // perhaps sent, perhaps not

// Failures of fetch before anything was written.
const notConnected = ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'UND_ERR_CONNECT_TIMEOUT']

// Sends a text and returns its messageId. The key belongs to this one message.
async function send(number, text, key) {
  let unanswered = false // an attempt ended so that it may have been the one that sent
  let problem
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    let retryAfter = 0
    try {
      const response = await fetch(`${BASE_URL.replace(/\/+$/, '')}/message/sendText/${API_TOKEN}`, {
        method: 'POST',
        headers: { apikey: API_KEY, 'Content-Type': 'application/json', 'Idempotency-Key': key },
        body: JSON.stringify({ number, textMessage: { text } }),
        redirect: 'manual',
        signal: AbortSignal.timeout(TIMEOUT * 1000),
      })
      retryAfter = Number(response.headers.get('Retry-After')) || 0
      const { messageId, message, error } = parse(await response.text())
      problem = message
      if (messageId) return messageId
      if (error && !error.retryable) {
        if (['delivery_unknown', 'internal_error'].includes(error.code)) throw new Unknown(problem)
        // A 401 says nothing of the attempts before it; every other refusal does.
        throw unanswered && error.code === 'unauthorized' ? new Unknown(problem) : new NotSent(problem)
      }
      if (!error) { // of a proxy: it refused (3xx, 4xx), or it does not know either
        problem = `an answer ${response.status} that is not the service's`
        if (response.status >= 300 && response.status < 500 && response.status !== 429) {
          throw unanswered ? new Unknown(problem) : new NotSent(problem)
        }
        unanswered = true
      }
    } catch (e) {
      if (e instanceof NotSent || e instanceof Unknown) throw e
      problem = `no answer: ${e.cause?.code ?? e.message}`
      unanswered ||= !notConnected.includes(e.cause?.code)
    }
    if (attempt + 1 < ATTEMPTS) {
      await sleep(1000 * Math.min(MAX_WAIT, retryAfter + Math.random() * 2 ** attempt))
    }
  }
  problem += ` (${ATTEMPTS} attempts)`
  throw unanswered ? new Unknown(problem) : new NotSent(problem)
}

// Returns messageId, or message and error; nothing of an answer that is not the service's.
function parse(content) {
  try {
    const { status, message, data, error } = JSON.parse(content)
    if (status === 'success') return { messageId: data.messageId }
    if (typeof error.retryable === 'boolean') return { message, error }
  } catch {
    // not JSON, or of another shape
  }
  return {}
}

const [number, text, more] = process.argv.slice(2)
if (!/^https?:/.test(BASE_URL ?? '') || !API_KEY || !API_TOKEN || text === undefined || more !== undefined) {
  console.error('usage: BASE_URL=… API_KEY=… API_TOKEN=… send.mjs NUMBER TEXT')
  process.exit(2)
}
// Once for each message, before the first attempt. Keep it with the message (in the
// order's row, in the job), so that a program that starts again uses the same one.
const key = IDEMPOTENCY_KEY || randomUUID()
try {
  console.log(await send(number, text, key))
} catch (e) {
  if (e instanceof NotSent) {
    console.error(`not sent: ${e.message}`)
    process.exitCode = 1
  } else if (e instanceof Unknown) {
    console.error(`unknown whether it was sent: ${e.message}\nIDEMPOTENCY_KEY=${key} asks again and cannot send twice`)
    process.exitCode = 3
  } else {
    throw e
  }
}
