#!/usr/bin/env php
<?php
// Sends one text: send.php NUMBER TEXT, with BASE_URL, API_KEY and API_TOKEN in the
// environment. PHP 8, no extension needed.
//
// Prints the messageId and exits with 0; 1: not sent; 2: called wrongly; 3: nobody
// knows whether it was sent. Optional: IDEMPOTENCY_KEY, ATTEMPTS (5), and in seconds
// MAX_WAIT between two attempts (60) and TIMEOUT of one (60).
declare(strict_types=1);

class NotSent extends Exception {} // certainly not sent
class Unknown extends Exception {} // perhaps sent, perhaps not

// Sends a text and returns its messageId. The key belongs to this one message.
function send(string $number, string $text, string $key): string
{
    $env = getenv() + ['ATTEMPTS' => 5, 'MAX_WAIT' => 60, 'TIMEOUT' => 60];
    $attempts = (int) $env['ATTEMPTS'];
    $url = rtrim(getenv('BASE_URL'), '/') . '/message/sendText/' . getenv('API_TOKEN');
    $context = stream_context_create(['http' => [
        'method' => 'POST',
        'header' => ['apikey: ' . getenv('API_KEY'), 'Content-Type: application/json', "Idempotency-Key: $key"],
        'content' => json_encode(['number' => $number, 'textMessage' => ['text' => $text]], JSON_THROW_ON_ERROR),
        'timeout' => (float) $env['TIMEOUT'], // longer than the longest options.delay you use
        'follow_location' => 0,
        'ignore_errors' => true, // answers other than 200 are answers too
    ]]);
    $unanswered = false; // an attempt ended so that it may have been the one that sent
    for ($attempt = 0; $attempt < $attempts; $attempt++) {
        $retryAfter = 0;
        $stream = @fopen($url, 'rb', false, $context);
        if ($stream === false) {
            // PHP's message begins with the URL, which holds the token.
            $reason = preg_replace('/^.*Failed to open stream: /is', '', error_get_last()['message'] ?? '');
            $problem = "no answer: $reason";
            $unanswered = $unanswered || !preg_match('/refused|getaddrinfo/i', $reason);
        } else {
            $status = 0;
            foreach (stream_get_meta_data($stream)['wrapper_data'] as $line) {
                if (preg_match('~^HTTP/\S+ (\d+)~', $line, $found)) {
                    $status = (int) $found[1];
                } elseif (preg_match('~^Retry-After: *(\d+)$~i', $line, $found)) {
                    $retryAfter = (int) $found[1];
                }
            }
            $answer = json_decode((string) stream_get_contents($stream), true);
            fclose($stream);
            $problem = $answer['message'] ?? '';
            $retryable = $answer['error']['retryable'] ?? null;
            if ($status === 200 && isset($answer['data']['messageId'])) {
                return $answer['data']['messageId'];
            }
            if ($retryable === false) {
                $code = $answer['error']['code'];
                if ($code === 'delivery_unknown' || $code === 'internal_error') {
                    throw new Unknown($problem);
                }
                // A 401 says nothing of the attempts before it; every other refusal does.
                throw $unanswered && $code === 'unauthorized' ? new Unknown($problem) : new NotSent($problem);
            }
            if ($retryable === null) { // of a proxy: it refused (3xx, 4xx), or it does not know either
                $problem = "an answer $status that is not the service's";
                if ($status >= 300 && $status < 500 && $status !== 429) {
                    throw $unanswered ? new Unknown($problem) : new NotSent($problem);
                }
                $unanswered = true;
            }
        }
        if ($attempt + 1 < $attempts) {
            $jitter = 2 ** $attempt * random_int(0, 1000) / 1000;
            usleep((int) (1e6 * min((float) $env['MAX_WAIT'], $retryAfter + $jitter)));
        }
    }
    $problem .= " ($attempts attempts)";
    throw $unanswered ? new Unknown($problem) : new NotSent($problem);
}

if ($argc !== 3 || !preg_match('/^https?:/', (string) getenv('BASE_URL')) || !getenv('API_KEY') || !getenv('API_TOKEN')) {
    fwrite(STDERR, "usage: BASE_URL=… API_KEY=… API_TOKEN=… send.php NUMBER TEXT\n");
    exit(2);
}
// Once for each message, before the first attempt. Keep it with the message (in the
// order's row, in the job), so that a program that starts again uses the same one.
$key = getenv('IDEMPOTENCY_KEY') ?: bin2hex(random_bytes(16));
try {
    echo send($argv[1], $argv[2], $key), "\n";
} catch (NotSent $e) {
    fwrite(STDERR, "not sent: {$e->getMessage()}\n");
    exit(1);
} catch (Unknown $e) {
    fwrite(STDERR, "unknown whether it was sent: {$e->getMessage()}\nIDEMPOTENCY_KEY=$key asks again and cannot send twice\n");
    exit(3);
}
