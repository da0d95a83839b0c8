// The outbox page. It reads the outbox's JSON API and its event stream, and sends
// through the real API. Everything that was sent is inserted as text, never as
// markup. No more than a window of a long list is ever in the document.

const pageSize = 50;       // messages or conversations in one request
const maxRows = 200;       // messages in the document
const maxConversations = 400;
const maxShownText = 3000; // characters of a text before "Show all"
const silence = 40_000;    // ms without a heartbeat (15 s) after which a stream is given up
const eagerMedia = 4 << 20; // bytes that are fetched unasked when media needs the key

const $ = id => document.getElementById(id);

// el makes an element: properties that start with "on" are listeners, "class",
// "data-…" and "aria-…" attributes, the rest properties.
function el(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (/^(class|role|for)$|-/.test(key)) node.setAttribute(key, value);
    else node[key] = value;
  }
  node.append(...children.filter(c => c !== null && c !== undefined));
  return node;
}

function icon(name) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const use = document.createElementNS('http://www.w3.org/2000/svg', 'use');
  svg.setAttribute('aria-hidden', 'true');
  use.setAttribute('href', '#i-' + name);
  svg.append(use);
  return svg;
}

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

// ---- Numbers, times and sizes, in the viewer's language and zone ----

const clock = new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit', second: '2-digit'});
const shortClock = new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit'});
const exactClock = new Intl.DateTimeFormat(undefined, {hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3});
const dayForm = new Intl.DateTimeFormat(undefined, {weekday: 'long', day: 'numeric', month: 'long', year: 'numeric'});
const shortDay = new Intl.DateTimeFormat(undefined, {day: 'numeric', month: 'short'});

function dayName(date) {
  const days = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(date).setHours(0, 0, 0, 0)) / 86400e3);
  return days === 0 ? 'Today' : days === 1 ? 'Yesterday' : dayForm.format(date);
}

function when(date) {
  const today = dayName(date);
  return today === 'Today' ? shortClock.format(date) : today === 'Yesterday' ? today : shortDay.format(date);
}

function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1).replace(/\.?0+$/, '')} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round(ms % 60_000 / 1000)} s`;
}

function size(bytes) {
  if (bytes < 1000) return `${bytes} bytes`;
  const unit = bytes < 1e6 ? 0 : bytes < 1e9 ? 1 : 2;
  const n = bytes / [1e3, 1e6, 1e9][unit];
  return `${n.toFixed(n < 10 ? 1 : 0)} ${['kB', 'MB', 'GB'][unit]}`;
}

const track = seconds => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, '0')}`;
const phone = number => '+' + number;

function face(node, number) {
  node.textContent = number.slice(-2);
  node.style.setProperty('--hue', String([...number].reduce((h, c) => (h * 31 + c.charCodeAt(0)) % 360, 7)));
  return node;
}

const kinds = {
  text: ['new', 'Text'], voice: ['mic', 'Voice message'], image: ['image', 'Picture'],
  video: ['video', 'Video'], audio: ['audio', 'Audio'], document: ['file', 'Document'],
};
const kindOf = m => m.mediaType || (m.operation === 'audio' ? 'voice' : 'text');
const gist = m => m.text || m.caption || m.fileName || kinds[kindOf(m)][1];

// ---- Access: the key and the token, kept in this tab only ----

// The page was served, so its API can be read in the same way: by HTTP Basic, or
// openly on this machine. readKey is a key that the viewer gave because that was
// not enough; null: none is needed.
const access = {key: sessionStorage.getItem('key') ?? '', token: sessionStorage.getItem('token') ?? '', readKey: null};

function remember(name, value) {
  access[name] = value;
  if (value) sessionStorage.setItem(name, value);
  else sessionStorage.removeItem(name);
}

// The start-up lines print a link with both in its fragment, which no server and
// no history gets to see.
function takeFragment() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (!given.has('key') && !given.has('token')) return;
  for (const name of ['key', 'token']) if (given.get(name)) remember(name, given.get(name));
  history.replaceState(null, '', location.pathname + location.search);
}

const base = new URL('.', location.href);
base.username = base.password = base.search = base.hash = '';
const place = path => new URL(path, base).href;

class Refused extends Error {
  constructor(status, body) {
    super(body?.message ?? `the service answered ${status}`);
    this.status = status;
    this.details = body?.error?.details ?? [];
    this.code = body?.error?.code;
  }
}

async function request(path, init = {}) {
  const headers = {...init.headers};
  if (access.readKey !== null) headers.apikey = access.readKey;
  // Beside a key no other credentials: a browser would ask for them after a 401.
  const credentials = access.readKey !== null ? 'omit' : 'same-origin';
  const response = await fetch(place(path), {...init, headers, credentials, cache: 'no-store'});
  if (response.ok) return response;
  throw new Refused(response.status, await response.json().catch(() => null));
}

async function read(path, parameters = {}, init) {
  const query = new URLSearchParams(parameters);
  return (await request(query.size ? `${path}?${query}` : path, init)).json();
}

// unlock asks for a key until the outbox can be read with it.
async function unlock() {
  const dialog = $('locked'), field = $('unlock-key');
  field.value = access.key;
  for (let first = true; ; first = false) {
    $('unlock-problem').hidden = first;
    $('unlock-problem').textContent = 'This key is not accepted.';
    field.setAttribute('aria-invalid', String(!first));
    dialog.showModal();
    await new Promise(resolve => dialog.addEventListener('close', resolve, {once: true}));
    access.readKey = field.value;
    try {
      await read('conversations', {limit: 1});
      remember('key', field.value);
      fillAccess();
      return;
    } catch (e) {
      if (e.status !== 401) throw e;
    }
  }
}

// ---- The event stream ----

const stream = {
  last: '',       // the place up to which everything has been seen; empty: nothing has been read yet
  witness: '',    // the newest message seen; that it is gone shows that all were deleted meanwhile
  wake: null,     // ends the pause before the next attempt
  stop: () => {}, // ends the stream that is open
};

function showState(name, text) {
  $('state').dataset.state = name;
  $('state-text').textContent = text;
}

// follow keeps the page up to date for as long as it is open. It continues after
// the last message it has seen, so that nothing is missed or doubled.
async function follow() {
  let pause = 250;
  for (;;) {
    try {
      if (stream.witness && await isGone(stream.witness)) stream.last = '';
      if (!stream.last) await loadAll();
      await listen(() => { pause = 250; });
    } catch (e) {
      if (e.status === 401) {
        access.readKey = null;
        showState('lost', 'No access');
        await unlock().then(() => { stream.last = ''; }, () => {});
      }
    }
    enqueue('lost');
    showState('lost', 'Reconnecting');
    await Promise.race([sleep(pause * (.75 + Math.random() / 2)), new Promise(wake => { stream.wake = wake; })]);
    pause = Math.min(pause * 2, 4000);
  }
}

async function isGone(messageId) {
  try {
    await request('messages/' + messageId);
    return false;
  } catch (e) {
    if (e.status === 404) return true;
    throw e;
  }
}

async function listen(connected) {
  const control = new AbortController();
  stream.stop = () => control.abort();
  let watch;
  const alive = () => {
    clearTimeout(watch);
    watch = setTimeout(() => control.abort(), silence);
  };
  alive();
  try {
    const response = await request('events', {headers: {'Last-Event-ID': stream.last}, signal: control.signal});
    const pieces = response.body.pipeThrough(new TextDecoderStream()).getReader();
    connected();
    showState('live', 'Live');
    resume();
    for (let rest = ''; ;) {
      const {done, value} = await pieces.read();
      if (done) return;
      alive();
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) take(block);
    }
  } finally {
    clearTimeout(watch);
    control.abort();
  }
}

// take reads one event. The server writes each field on one line.
function take(block) {
  let name = '', data = '';
  for (const line of block.split('\n')) {
    if (line.startsWith('event: ')) name = line.slice(7);
    else if (line.startsWith('data: ')) data = line.slice(6);
  }
  if (!name) return;
  const event = JSON.parse(data);
  if (name === 'message') {
    if (event.messageId <= stream.last) return;
    stream.last = stream.witness = event.messageId;
  }
  enqueue(name, event);
}

// Events are applied together, once per frame, however fast they come.
let queue = [];
function enqueue(name, event) {
  queue.push([name, event]);
  if (queue.length > 1) return;
  // A page in the background has no frames, but its title counts on.
  if (document.hidden) setTimeout(apply, 250);
  else requestAnimationFrame(apply);
}
document.addEventListener('visibilitychange', () => queue.length && apply());

function apply() {
  const events = queue;
  queue = [];
  const arrived = [];
  for (const [name, event] of events) {
    if (name === 'message') arrived.push(event);
    else if (name === 'clear') { arrived.length = 0; forgetAll(); }
    else if (name === 'lost') [...presences.values()].forEach(p => setPresence({...p, shown: false}));
    else if (name === 'presence') setPresence(event);
  }
  if (arrived.length) receive(arrived);
  renderPresences();
  renderFrame();
}

// ---- Conversations ----

const conversations = new Map(); // by number; those in the list
const list = {more: false, busy: false};
const dirty = new Set();         // numbers whose entry is to be drawn again
const wide = matchMedia('(min-width: 44.01rem)');

async function loadAll() {
  const page = await read('conversations');
  for (const c of conversations.values()) c.item.remove();
  conversations.clear();
  addOlder(page.conversations);
  list.more = page.conversations.length === pageSize;
  stream.last = page.newest;
  stream.witness = page.conversations[0]?.last.messageId ?? '';
  if (thread.number) openThread(thread.number);
  renderFrame();
}

function addOlder(page) {
  for (const {number, last} of page) {
    if (conversations.has(number)) continue;
    const c = newConversation(number, last);
    $('list').append(c.item);
  }
}

function newConversation(number, last) {
  const c = {number, last, unread: 0, item: el('li')};
  conversations.set(number, c);
  drawEntry(c);
  return c;
}

async function loadMoreConversations() {
  if (!list.more || list.busy || conversations.size >= maxConversations) return;
  const oldest = [...conversations.values()].reduce((a, b) => !b.last || a && a < b.last.messageId ? a : b.last.messageId, '');
  list.busy = true;
  try {
    const page = await read('conversations', {before: oldest});
    list.more = page.conversations.length === pageSize;
    addOlder(page.conversations);
  } catch { /* the stream shows that there is no connection; scrolling tries again */ }
  list.busy = false;
}

// receive takes in messages, oldest first.
function receive(messages) {
  let unread = 0;
  for (const m of messages) {
    let c = conversations.get(m.number);
    if (!c) $('list').prepend((c = newConversation(m.number, m)).item);
    c.last = m;
    dirty.add(m.number);
    if (m.number !== thread.number || document.hidden) { c.unread++; unread++; }
  }
  // The newest ends up on top. An entry that is there already is left alone: to move
  // it would take the focus from it.
  for (const number of [...new Set(messages.map(m => m.number).reverse())].reverse()) {
    const {item} = conversations.get(number);
    if ($('list').firstElementChild !== item) moveToTop(item);
  }
  for (const item of [...$('list').children].slice(maxConversations)) {
    conversations.delete(item.dataset.number);
    item.remove();
    list.more = false; // the search finds the others
  }
  const mine = messages.filter(m => m.number === thread.number);
  if (mine.length) appendLive(mine);
  else if (idle() && wide.matches) go(messages.at(-1).number, {replace: true});
  announce(messages);
}

function moveToTop(item) {
  const focused = item.contains(document.activeElement) ? document.activeElement : null;
  $('list').prepend(item);
  focused?.focus({preventScroll: true});
}

function forgetAll() {
  for (const c of conversations.values()) c.item.remove();
  conversations.clear();
  list.more = false;
  stream.witness = '';
  if (thread.number) go('', {replace: true});
}

function drawEntry(c) {
  const shown = [...presences.values()].findLast(p => p.number === c.number);
  c.item.dataset.number = c.number;
  const parts = [
    face(el('span', {class: 'face', 'aria-hidden': 'true'}), c.number),
    el('b', {}, phone(c.number)),
    c.last ? el('time', {dateTime: c.last.sentAt}, when(new Date(c.last.sentAt))) : el('span'),
    shown ? el('span', {class: 'line typing'}, presenceText(shown))
      : c.last ? summaryLine(c.last) : null,
    c.unread ? el('span', {class: 'badge'}, c.unread > 999 ? '999+' : String(c.unread), el('span', {class: 'unseen'}, ' new')) : null,
  ];
  if (!c.button) {
    c.button = el('button', {class: 'entry', type: 'button', onclick: () => go(c.number)});
    c.item.append(c.button);
  }
  c.button.classList.toggle('whole', !c.unread);
  c.button.replaceChildren(...parts.filter(Boolean));
  c.button.setAttribute('aria-current', String(c.number === thread.number));
}

function summaryLine(m, text = gist(m)) {
  const kind = kindOf(m);
  return el('span', {class: 'line'},
    kind === 'text' ? null : icon(kinds[kind][0]),
    kind === 'text' ? null : el('span', {class: 'unseen'}, kinds[kind][1] + ': '),
    el('span', {}, text.slice(0, 160)));
}

function renderFrame() {
  for (const number of dirty) {
    const c = conversations.get(number);
    if (c) drawEntry(c);
  }
  dirty.clear();
  const unread = [...conversations.values()].reduce((n, c) => n + c.unread, 0);
  document.title = unread ? `(${unread}) Outbox` : 'Outbox';
  const empty = conversations.size === 0;
  $('list-empty').hidden = !empty;
  $('clear').hidden = empty;
  const view = writing || thread.number ? 'conversation' : !stream.last ? '' : empty ? 'welcome' : 'idle';
  for (const id of ['conversation', 'welcome', 'idle']) $(id).hidden = id !== view;
  $('app').dataset.view = view === 'conversation' || view === 'welcome' ? 'thread' : 'list';
}

// announce tells a screen reader, at most every two seconds.
let unheard = [], speaking = false;
async function announce(messages) {
  unheard.push(...messages.slice(-2));
  unheard.count = (unheard.count ?? 0) + messages.length;
  if (speaking) return;
  speaking = true;
  await sleep(100);
  $('announcer').textContent = unheard.count === 1
    ? `New message to ${phone(unheard[0].number)}: ${gist(unheard[0]).slice(0, 200)}`
    : `${unheard.count} new messages`;
  unheard = [];
  await sleep(2000);
  speaking = false;
}

// ---- Presences ----

const presences = new Map(); // by presenceId; those that are shown now
let presencesChanged = false;

const presenceText = p => p.presence === 'paused' ? 'paused' : p.presence + '…';

function setPresence(p) {
  if (p.shown) presences.set(p.presenceId, {...p, seen: performance.now()});
  else presences.delete(p.presenceId);
  presencesChanged = true;
  let c = conversations.get(p.number);
  if (!c && p.shown) {
    c = newConversation(p.number, null);
    $('list').prepend(c.item);
    if (idle() && wide.matches) go(p.number, {replace: true});
  } else if (c && !c.last && !p.shown) {
    // Nothing came of it; a message in the same batch brings the entry back.
    c.item.remove();
    conversations.delete(p.number);
  }
  dirty.add(p.number);
}

function renderPresences() {
  if (!presencesChanged) return;
  presencesChanged = false;
  const here = [...presences.values()].filter(p => p.number === thread.number);
  const line = $('presence-line');
  line.textContent = here.length ? presenceText(here.at(-1)) : '';
  line.className = here.length ? 'typing' : '';
  const box = $('presences');
  const ids = new Set(here.map(p => p.presenceId));
  for (const node of [...box.children]) if (!ids.has(node.dataset.id)) node.remove();
  const there = new Set([...box.children].map(node => node.dataset.id));
  for (const p of here.filter(p => !there.has(p.presenceId)).slice(0, 5)) {
    const rest = el('i', {class: 'rest'});
    // How far the hold is comes from the server's clock when that makes sense.
    const since = Date.now() - Date.parse(p.presenceFrom);
    const gone = since > 0 && since < p.delay ? since : performance.now() - p.seen;
    rest.style.animationDuration = `${p.delay}ms`;
    rest.style.animationDelay = `${-gone}ms`;
    box.append(el('p', {class: 'typing-bubble', 'data-id': p.presenceId, 'data-presence': p.presence},
      el('span', {class: 'dots', 'aria-hidden': 'true'}, el('i'), el('i'), el('i')), presenceText(p), rest));
  }
  if (thread.stick) toEnd();
}

// ---- The open conversation: a window into its messages ----

const thread = {
  number: '',
  rows: [],       // {m, node} in the document, oldest first
  turn: 0,        // of the conversation that is open; answers to an earlier one are dropped
  filled: false,  // its first page has come
  busy: false,    // a page is on its way
  atStart: true,  // nothing older exists
  atEnd: true,    // nothing newer exists
  stick: true,    // the viewer is at the end and follows it
  fresh: [],      // came while a page was on its way
  below: 0,       // new ones that the viewer has not scrolled to
};
let writing = false; // a message to a new number
const idle = () => !thread.number && !writing && !$('search').value && !document.querySelector('dialog[open]');

// go opens a conversation by its fragment, so that the browser's Back leaves it.
function go(number, {replace = false, messageId} = {}) {
  const url = location.pathname + location.search + (number ? '#' + number : '');
  if (replace) history.replaceState(null, '', url);
  else if (location.hash.slice(1) !== number) history.pushState(null, '', url);
  route(messageId);
}

function route(messageId) {
  const name = location.hash.slice(1);
  const number = /^\d{1,15}$/.test(name) ? name : '';
  const was = writing;
  writing = name === 'new';
  if (number !== thread.number || messageId) openThread(number, messageId);
  else if (number) { // chosen again
    const c = conversations.get(number);
    if (c?.unread) { c.unread = 0; dirty.add(number); }
  }
  $('title').textContent = writing ? 'New message' : phone(number);
  $('face').hidden = writing;
  if (number) face($('face'), number);
  $('thread').classList.toggle('blank', writing);
  $('number-field').hidden = !writing;
  if (was !== writing || number) clearProblems();
  renderFrame();
  if (writing) $('number').focus();
}

async function openThread(number, messageId) {
  const before = thread.number;
  const turn = ++thread.turn;
  Object.assign(thread, {number, filled: false, busy: true, atStart: true, atEnd: true, stick: true, fresh: [], below: 0});
  for (const n of [before, number]) if (n) dirty.add(n);
  const c = conversations.get(number);
  if (c) c.unread = 0;
  if (before !== number) setRows([]);
  presencesChanged = true;
  renderPresences();
  showJump();
  if (!number) { thread.busy = false; return; }
  try {
    let older, newer = [], more = false;
    if (messageId) {
      ({messages: older} = await read('messages', {number, before: messageId, newest: pageSize / 2}));
      ({messages: newer} = await read('messages', {number, after: older.at(-1)?.messageId ?? '', limit: pageSize}));
      more = newer.length === pageSize;
      if (turn !== thread.turn) return;
      Object.assign(thread, {atStart: older.length < pageSize / 2, atEnd: !more, stick: false});
    } else {
      ({messages: older} = await read('messages', {number, newest: pageSize}));
      if (turn !== thread.turn) return;
      Object.assign(thread, {atStart: older.length < pageSize, atEnd: true});
    }
    setRows([...older, ...newer]);
    Object.assign(thread, {filled: true, busy: false});
    takeFresh();
    const hit = thread.rows.find(row => row.m.messageId === messageId);
    if (hit) {
      hit.node.scrollIntoView({block: 'center'});
      hit.node.classList.add('found');
    } else {
      toEnd();
    }
  } catch {
    if (turn === thread.turn) thread.busy = false; // resume tries again
  }
}

// resume repairs what a lost connection left undone.
function resume() {
  if (thread.number && !thread.filled && !thread.busy) openThread(thread.number);
}

function setRows(messages) {
  for (const row of thread.rows) dispose(row.node);
  thread.rows = messages.map(m => ({m, node: bubble(m)}));
  $('messages').replaceChildren(...thread.rows.map(row => row.node));
  markDays();
}

// appendLive takes messages that have just arrived.
function appendLive(messages) {
  if (thread.busy) {
    thread.fresh = [...thread.fresh, ...messages].slice(-maxRows);
    return;
  }
  const last = thread.rows.at(-1)?.m.messageId ?? '';
  const news = messages.filter(m => m.messageId > last);
  if (!news.length) return;
  if (!thread.stick) thread.below += news.length;
  // One that reads further up keeps its place: the window ends there.
  if (thread.atEnd && !thread.stick && thread.rows.length + news.length > maxRows) thread.atEnd = false;
  if (thread.atEnd) {
    addRows(news.slice(-maxRows), news.length <= 3);
    if (thread.rows.length > maxRows) { dropRows(0, thread.rows.length - maxRows); thread.atStart = false; }
  }
  if (thread.stick) toEnd();
  showJump();
}

function takeFresh() {
  const fresh = thread.fresh;
  thread.fresh = [];
  if (fresh.length && thread.atEnd) appendLive(fresh);
}

function addRows(messages, animated) {
  const rows = messages.map(m => ({m, node: bubble(m)}));
  if (animated) rows.forEach(row => row.node.classList.add('arrived'));
  thread.rows.push(...rows);
  $('messages').append(...rows.map(row => row.node));
  markDays();
}

function dropRows(from, count) {
  for (const {node} of thread.rows.splice(from, count)) {
    dispose(node);
    node.remove();
  }
  markDays();
}

function markDays() {
  let before = '';
  for (const {m, node} of thread.rows) {
    const day = dayName(new Date(m.sentAt));
    if (day !== before) node.dataset.day = day;
    else delete node.dataset.day;
    before = day;
  }
}

// keepPlace changes the document without moving what the viewer looks at.
function keepPlace(change) {
  const box = $('thread'), top = box.getBoundingClientRect().top;
  const anchor = thread.rows.find(row => row.node.getBoundingClientRect().bottom > top)?.node;
  const at = anchor?.getBoundingClientRect().top;
  change();
  if (anchor?.isConnected) box.scrollTop += anchor.getBoundingClientRect().top - at;
}

async function turnPage(older) {
  if (thread.busy || !thread.filled || (older ? thread.atStart : thread.atEnd)) return;
  const turn = thread.turn;
  thread.busy = true;
  try {
    const {messages} = await read('messages', older
      ? {number: thread.number, before: thread.rows[0].m.messageId, newest: pageSize}
      : {number: thread.number, after: thread.rows.at(-1).m.messageId, limit: pageSize});
    if (turn !== thread.turn) return;
    keepPlace(() => {
      if (older) {
        const rows = messages.map(m => ({m, node: bubble(m)}));
        thread.rows.unshift(...rows);
        $('messages').prepend(...rows.map(row => row.node));
        thread.atStart = messages.length < pageSize;
        if (thread.rows.length > maxRows) { dropRows(maxRows, Infinity); thread.atEnd = false; }
        markDays();
      } else {
        addRows(messages);
        thread.atEnd = messages.length < pageSize;
        if (thread.rows.length > maxRows) { dropRows(0, thread.rows.length - maxRows); thread.atStart = false; }
      }
    });
  } catch { /* scrolling tries again */ }
  if (turn !== thread.turn) return;
  thread.busy = false;
  takeFresh();
  showJump();
}

function toEnd() {
  const box = $('thread');
  box.scrollTop = box.scrollHeight;
}

function showJump() {
  $('jump').hidden = thread.stick && thread.atEnd || !thread.rows.length;
  $('jump-text').textContent = thread.below ? `${thread.below} new` : 'Newest';
}

function scrolled() {
  const box = $('thread');
  const below = box.scrollHeight - box.clientHeight - box.scrollTop;
  thread.stick = below < 48 && thread.atEnd;
  if (thread.stick) thread.below = 0;
  showJump();
  if (box.scrollTop < 600) turnPage(true);
  else if (below < 600) turnPage(false);
}

// ---- One message ----

const urlForm = /https?:\/\/[^\s<>"]+/gi;

// linked returns text with its web addresses as links. Only http and https ever
// become one.
function linked(text) {
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(urlForm)) {
    const written = match[0].replace(/[.,;:!?'’”)\]}]+$/, '');
    let url;
    try { url = new URL(written); } catch { continue; }
    if (url.protocol !== 'http:' && url.protocol !== 'https:') continue;
    parts.push(text.slice(at, match.index), outside(url.href, written));
    at = match.index + written.length;
  }
  parts.push(text.slice(at));
  return parts;
}

const outside = (href, text) => el('a', {href, target: '_blank', rel: 'noopener noreferrer'}, text);

function words(text) {
  const p = el('p', {class: 'words', dir: 'auto'});
  if (text.length <= maxShownText) {
    p.append(...linked(text));
    return [p];
  }
  p.append(text.slice(0, maxShownText) + '…');
  const more = el('button', {class: 'plain more', type: 'button', onclick: () => {
    p.replaceChildren(...linked(text));
    more.remove();
  }}, `Show all ${text.length.toLocaleString()} characters`);
  return [p, more];
}

function bubble(m) {
  const kind = kindOf(m);
  const flush = kind === 'image' && m.mediaUrl || kind === 'video' && m.mediaUrl;
  const box = el('div', {class: flush ? 'bubble flush' : 'bubble'});
  const node = el('li', {class: 'message', 'data-id': m.messageId},
    box, el('button', {class: 'icon about', type: 'button', title: 'Details', 'aria-label': `Details of the message: ${gist(m).slice(0, 60)}`, onclick: () => showDetails(m)}, icon('info')));
  if (kind !== 'text') box.append(m.mediaUrl ? media(m, kind, node) : faraway(m, kind));
  if (m.text || m.caption) box.append(...words(m.text || m.caption));
  if (m.linkPreview !== undefined) box.append(el('span', {class: 'flag'}, icon('link'), `link preview ${m.linkPreview ? 'on' : 'off'}`));
  box.append(foot(m));
  return node;
}

function holdOf(m) {
  const from = Date.parse(m.presenceFrom ?? m.requestedAt);
  return Math.max(0, Date.parse(m.sentAt) - from);
}

function foot(m) {
  const hold = holdOf(m), sent = el('time', {dateTime: m.sentAt}, clock.format(new Date(m.sentAt)));
  if (hold < 50) return el('p', {class: 'foot'}, sent);
  return el('p', {class: 'foot', title: `requested ${clock.format(new Date(m.requestedAt))}, held for ${duration(hold)}`},
    el('time', {dateTime: m.requestedAt}, clock.format(new Date(m.requestedAt))),
    el('span', {class: 'hold'}, el('i', {class: m.presence ? 'shown' : ''}),
      (m.presence ? m.presence + ' ' : '') + duration(hold), el('i', {class: m.presence ? 'shown' : ''})),
    sent);
}

// faraway is media that the platform would fetch itself. This page does not: it
// makes no request to anywhere else.
function faraway(m, kind) {
  let host = m.sourceUrl;
  try { host = new URL(m.sourceUrl).host; } catch { /* shown as it is */ }
  return el('a', {class: 'paper', href: /^https?:/i.test(m.sourceUrl) ? m.sourceUrl : undefined, target: '_blank', rel: 'noopener noreferrer'},
    icon(kinds[kind][0]), el('b', {}, m.fileName || kinds[kind][1]), el('span', {}, `by URL, at ${host}`), icon('link'));
}

// Media that was shown by a blob: URL gives its memory back with its message.
const blobs = new WeakMap(); // node → URLs
function dispose(node) {
  for (const player of node.querySelectorAll('audio, video')) { player.pause(); player.removeAttribute('src'); player.load(); }
  for (const url of blobs.get(node) ?? []) URL.revokeObjectURL(url);
}

// mediaURL is a URL that an element of node can show. An element sends no key, so
// media that needs one is fetched first.
async function mediaURL(m, node, type = m.contentType) {
  if (access.readKey === null) return place(m.mediaUrl);
  const bytes = await (await request(m.mediaUrl)).arrayBuffer();
  const url = URL.createObjectURL(new Blob([bytes], {type}));
  blobs.set(node, [...blobs.get(node) ?? [], url]);
  return url;
}

// Only these are ever shown; the rest is for saving (an SVG or HTML document may
// hold a script, and a blob: URL would run it in the name of this page).
const showable = {image: /^image\/(?!svg)/, video: /^video\//, audio: /^audio\//, voice: /^audio\//};

function media(m, kind, node) {
  if (!showable[kind]?.test(m.contentType)) return paper(m, kind, node);
  const show = {image: picture, video: film, audio: sound, voice}[kind];
  if (access.readKey === null || m.size <= eagerMedia) return show(m, node);
  const ask = el('button', {class: 'paper', type: 'button', onclick: () => ask.replaceWith(show(m, node))},
    icon(kinds[kind][0]), el('b', {}, `Load the ${kinds[kind][1].toLowerCase()}`), el('span', {}, size(m.size)), icon('save'));
  return ask;
}

const lost = (node, m) => () => node.replaceWith(el('p', {class: 'paper'}, icon('file'), el('b', {}, 'The media cannot be shown'), el('span', {}, `${m.contentType}, ${size(m.size)}`)));

function picture(m, node) {
  const img = el('img', {alt: m.caption || m.fileName || 'Picture', loading: 'lazy', decoding: 'async'});
  const frame = el('a', {class: 'picture', target: '_blank', rel: 'noopener'}, img);
  img.addEventListener('load', () => {
    const fit = () => img.classList.add('fitted');
    if (thread.stick) { fit(); toEnd(); } else keepPlace(fit);
  });
  img.addEventListener('error', lost(frame, m));
  mediaURL(m, node).then(url => { img.src = frame.href = url; }, lost(frame, m));
  return frame;
}

function player(name, m, node, properties) {
  const media = el(name, {preload: 'metadata', ...properties});
  media.addEventListener('error', () => media.error && media.hasAttribute('src') && lost(media, m)());
  mediaURL(m, node).then(url => { media.src = url; }, lost(media, m));
  return media;
}

const film = (m, node) => player('video', m, node, {class: 'film', controls: true, playsInline: true, 'aria-label': m.caption || m.fileName || 'Video'});
const sound = (m, node) => player('audio', m, node, {class: 'sound', controls: true, 'aria-label': m.fileName || 'Audio'});

function voice(m, node) {
  const audio = player('audio', m, node, {});
  const button = el('button', {type: 'button', 'aria-label': 'Play the voice message', onclick: () => audio.paused ? audio.play().catch(() => {}) : audio.pause()}, icon('play'));
  const seek = el('input', {type: 'range', min: 0, max: 1000, value: 0, 'aria-label': 'Position', oninput: () => {
    if (isFinite(audio.duration)) audio.currentTime = audio.duration * seek.value / 1000;
  }});
  const time = el('output', {}, '–:––');
  const draw = () => {
    const known = isFinite(audio.duration) && audio.duration > 0;
    if (known) seek.value = String(1000 * audio.currentTime / audio.duration);
    time.textContent = !audio.paused || audio.currentTime > 0 ? track(audio.currentTime) : known ? track(audio.duration) : '–:––';
    button.replaceChildren(icon(audio.paused ? 'play' : 'pause'));
    button.setAttribute('aria-label', audio.paused ? 'Play the voice message' : 'Pause the voice message');
  };
  for (const event of ['loadedmetadata', 'durationchange', 'timeupdate', 'play', 'pause', 'ended']) audio.addEventListener(event, draw);
  return el('div', {class: 'voice', role: 'group', 'aria-label': 'Voice message'}, button, seek, time, audio);
}

function paper(m, kind, node) {
  const name = m.fileName || kinds[kind][1];
  const link = el('a', {class: 'paper', download: name, href: place(m.mediaUrl), title: 'Save'},
    icon('file'), el('b', {}, name), el('span', {}, `${m.contentType}, ${size(m.size)}`), icon('save'));
  if (access.readKey !== null) {
    link.addEventListener('click', async e => {
      if (link.href.startsWith('blob:')) return;
      e.preventDefault();
      link.href = await mediaURL(m, node, 'application/octet-stream');
      link.click();
    });
  }
  return link;
}

// ---- Details ----

const quoted = text => `'${text.replaceAll("'", `'\\''`)}'`;
const audioPath = `sendWhatsAppAudio`.replace('WhatsApp', document.documentElement.dataset.audioWord);

function curlOf(m) {
  const options = {};
  if (m.delay) options.delay = m.delay;
  if (m.presence) options.presence = m.presence;
  if (m.linkPreview !== undefined) options.linkPreview = m.linkPreview;
  if (m.encoding) options.encoding = true;
  const body = {number: m.number};
  if (Object.keys(options).length) body.options = options;
  const mark = '\0'; // no URL and no text of a sent message comes after it
  const source = m.mediaUrl ? mark : m.sourceUrl; // the URL may have lost its query, which may be secret
  if (m.operation === 'text') body.textMessage = {text: m.text};
  else if (m.operation === 'audio') body.audioMessage = {audio: source};
  else body.mediaMessage = {mediaType: m.mediaType, fileName: m.fileName, caption: m.caption, media: source};
  const path = {text: 'sendText', media: 'sendMedia', audio: audioPath}[m.operation];
  const post = `curl ${place('../message/' + path)}/$TOKEN \\\n  -H "apikey: $KEY" -H 'Content-Type: application/json' \\\n  `;
  const json = JSON.stringify(body);
  if (!m.mediaUrl) return `${post}-d ${quoted(json)}`;
  const at = json.lastIndexOf('\\u0000');
  return `{ printf %s ${quoted(json.slice(0, at))}\n` +
    `  curl -sS -H "apikey: $KEY" ${place(m.mediaUrl)} | base64 | tr -d '\\n'\n` +
    `  printf %s ${quoted(json.slice(at + 6))}\n} | ${post}-d @-`;
}

function copyButton(text, label = 'Copy') {
  const word = el('span', {}, label);
  const button = el('button', {class: 'plain copy', type: 'button', onclick: async () => {
    try {
      await navigator.clipboard.writeText(text);
      word.textContent = 'Copied';
    } catch {
      word.textContent = 'Cannot copy here'; // only https and loopback may
    }
    await sleep(1600);
    word.textContent = label;
  }}, icon('copy'), word);
  return button;
}

const call = (title, command, heading = 'h2') => el('div', {class: 'call'},
  el('div', {class: 'head'}, el(heading, {}, title), copyButton(command)), el('pre', {}, command));

function showDetails(m) {
  const moment = (name, time, note, during) => el('li', {class: during ? 'during' : ''},
    el('b', {}, name), el('time', {dateTime: time}, exactClock.format(new Date(time))), note ? el('span', {}, note) : null);
  const requested = Date.parse(m.requestedAt), hold = holdOf(m);
  const times = el('ol', {class: 'times'}, moment('Requested', m.requestedAt, dayName(new Date(m.requestedAt))));
  if (m.presenceFrom) times.append(moment(`${m.presence[0].toUpperCase()}${m.presence.slice(1)} shown`, m.presenceFrom, `${duration(Math.max(0, Date.parse(m.presenceFrom) - requested))} later`, true));
  times.append(moment('Sent', m.sentAt, m.presenceFrom || m.delay ? `after a hold of ${duration(hold)}; ${duration(m.delay)} were asked for` : `${duration(hold)} later`));
  const facts = el('dl', {class: 'facts'});
  for (const [name, value] of Object.entries(m)) facts.append(el('dt', {}, name), el('dd', {}, String(value)));
  $('details-title').textContent = kinds[kindOf(m)][1] === 'Text' ? 'Text message' : kinds[kindOf(m)][1];
  $('details-body').replaceChildren(
    el('div', {class: 'identity'}, el('code', {id: 'details-id'}, m.messageId), copyButton(m.messageId)),
    el('h3', {}, 'Timeline'), times,
    el('h3', {}, 'All fields'), facts,
    el('h3', {}, 'Send it again'), call('curl', curlOf(m), 'h4'));
  $('details').showModal();
  $('details-body').scrollTop = 0;
}

// ---- Search ----

let searching = null;
async function search() {
  searching?.abort();
  const text = $('search').value.trim();
  $('results').hidden = !text;
  $('list').hidden = !!text;
  $('list-empty').classList.toggle('unseen', !!text);
  if (!text) return;
  const control = searching = new AbortController();
  await sleep(120);
  if (control.signal.aborted) return;
  const digits = text.replace(/[\s+().-]/g, '');
  try {
    const [numbers, messages] = await Promise.all([
      /^\d+$/.test(digits) ? read('conversations', {number: digits, limit: 20}, control) : {conversations: []},
      read('messages', {text, newest: pageSize}, control),
    ]);
    const found = messages.messages.reverse();
    $('found-numbers').replaceChildren(...numbers.conversations.map(c => el('li', {}, hit(c.number, c.last, summaryLine(c.last), () => go(c.number)))));
    $('found-messages').replaceChildren(...found.map(m => el('li', {}, hit(m.number, m, excerpt(m, text), () => go(m.number, {messageId: m.messageId})))));
    $('numbers-title').hidden = !numbers.conversations.length;
    $('messages-title').hidden = !found.length;
    const count = numbers.conversations.length + found.length;
    $('found-none').textContent = count ? '' : 'No number and no message has this.';
  } catch (e) {
    if (!control.signal.aborted) $('found-none').textContent = e.message;
  }
}

const hit = (number, m, line, onclick) => el('button', {class: 'entry whole', type: 'button', onclick},
  face(el('span', {class: 'face', 'aria-hidden': 'true'}), number), el('b', {}, phone(number)),
  el('time', {dateTime: m.sentAt}, when(new Date(m.sentAt))), line);

// excerpt shows a found message from a little before the place that matched.
function excerpt(m, text) {
  const wanted = text.toLowerCase();
  const where = [m.text, m.caption, m.fileName].find(s => s?.toLowerCase().includes(wanted)) ?? gist(m);
  const at = where.toLowerCase().indexOf(wanted);
  const line = summaryLine(m, '');
  if (at < 0) line.lastChild.textContent = where.slice(0, 160);
  else line.lastChild.append((at > 24 ? '…' : '') + where.slice(Math.max(0, at - 24), at),
    el('mark', {}, where.slice(at, at + text.length)), where.slice(at + text.length, at + 120));
  return line;
}

// ---- The composer ----

const composer = {
  kind: 'text',
  file: null,     // chosen for media; null: the URL counts
  voice: null,    // chosen or recorded; null: the URL counts
  sending: null,  // AbortController of the message on its way
  recorder: null,
};

function fillAccess() {
  $('key').value = access.key;
  $('token').value = access.token;
}

function setKind(kind) {
  composer.kind = kind;
  for (const input of $('composer').elements.kind) input.checked = input.value === kind;
  for (const name of ['text', 'media', 'audio']) {
    for (const node of document.querySelectorAll('.for-' + name)) node.hidden = name !== kind;
  }
  clearProblems();
}

function open(toggle, panel, shown) {
  $(toggle).setAttribute('aria-expanded', String(shown));
  $(panel).hidden = !shown;
}

// choose takes the file of an operation; null removes it.
function choose(kind, file) {
  const media = kind === 'media';
  composer[media ? 'file' : 'voice'] = file;
  const chosen = $(media ? 'media-chosen' : 'audio-chosen'), url = $(media ? 'media-url' : 'audio-url');
  chosen.hidden = !file;
  url.hidden = !!file;
  if (!file) {
    $(media ? 'media-file' : 'audio-file').value = '';
    return;
  }
  chosen.replaceChildren(el('span', {}, `${file.name}, ${size(file.size)}`),
    el('button', {class: 'icon', type: 'button', 'aria-label': `Remove ${file.name}`, onclick: () => { choose(kind, null); url.focus(); }}, icon('close')));
  if (!media) return;
  const type = file.type.split('/')[0];
  $('media-type').value = /svg/.test(file.type) || !['image', 'video', 'audio'].includes(type) ? 'document' : type;
  $('file-name').value = file.name;
}

const base64 = file => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(',') + 1));
  reader.onerror = () => reject(new Error('the file cannot be read'));
  reader.readAsDataURL(file);
});

// compose makes the request body from the fields, unchecked: the API says best
// what is wrong with it.
async function compose() {
  const {kind} = composer;
  const body = {number: writing ? $('number').value.trim() : thread.number, options: {}};
  const delay = $('delay').value.trim();
  if (delay) body.options.delay = isFinite(Number(delay)) ? Number(delay) : delay;
  const presence = $('presence').value;
  if (presence) body.options.presence = presence !== 'auto' ? presence : kind === 'audio' ? 'recording' : 'composing';
  if (kind === 'text') {
    if ($('link-preview').value) body.options.linkPreview = $('link-preview').value === 'true';
    body.textMessage = {text: $('text').value};
  } else if (kind === 'media') {
    body.mediaMessage = {mediaType: $('media-type').value};
    if ($('file-name').value) body.mediaMessage.fileName = $('file-name').value;
    if ($('caption').value) body.mediaMessage.caption = $('caption').value;
    const media = composer.file ? await base64(composer.file) : $('media-url').value.trim();
    if (media || composer.file) body.mediaMessage.media = media;
  } else {
    if ($('encoding').value) body.options.encoding = true;
    const audio = composer.voice ? await base64(composer.voice) : $('audio-url').value.trim();
    body.audioMessage = audio || composer.voice ? {audio} : {};
  }
  return body;
}

async function send(event) {
  event.preventDefault();
  if (composer.sending) {
    composer.sending.abort();
    return;
  }
  clearProblems();
  remember('key', $('key').value.trim());
  remember('token', $('token').value.trim());
  if (!access.key || !access.token) {
    if (!access.key) problem('apikey', 'is needed to send');
    if (!access.token) problem('apiToken', 'is needed to send');
    focusProblem();
    return;
  }
  const {kind} = composer;
  const path = {text: 'sendText', media: 'sendMedia', audio: audioPath}[kind];
  composer.sending = new AbortController();
  $('send-text').textContent = 'Cancel';
  answer('', 'Sending…');
  const began = performance.now();
  try {
    const body = await compose();
    const response = await fetch(place(`../message/${path}/${encodeURIComponent(access.token)}`), {
      method: 'POST', credentials: 'omit', signal: composer.sending.signal,
      headers: {apikey: access.key, 'Content-Type': 'application/json'}, body: JSON.stringify(body),
    });
    const result = await response.json().catch(() => null);
    if (!response.ok) throw new Refused(response.status, result);
    const took = performance.now() - began;
    await sent(kind, body.number, result.data.messageId);
    answer('', 'Sent as ', el('code', {}, result.data.messageId), ` after ${duration(took)}`);
  } catch (e) {
    refused(e);
  }
  composer.sending = null;
  $('send-text').textContent = 'Send';
}

// sent empties what was sent, and looks at it.
async function sent(kind, number, messageId) {
  if (kind === 'text') { $('text').value = ''; grow(); }
  else { choose(kind, null); for (const id of ['media-url', 'audio-url', 'caption', 'file-name']) $(id).value = ''; }
  if (access.readKey === null && await isGone(messageId).catch(() => false)) {
    // The key is of another account than the one that is shown: show that one.
    access.readKey = access.key;
    stream.last = '';
    queue = [];
    stream.stop();
  }
  if (writing) go(number, {replace: true});
  else if (thread.number === number) { thread.stick = thread.atEnd; if (thread.stick) toEnd(); }
}

function refused(e) {
  if (e.name === 'AbortError') {
    answer('bad', 'Cancelled: nothing was sent.');
    return;
  }
  if (!(e instanceof Refused)) {
    answer('bad', 'The service cannot be reached; whether the message was sent is not known.');
    return;
  }
  for (const {field, message} of e.details) problem(field, message);
  if (e.status === 401) for (const field of ['apikey', 'apiToken']) problem(field, 'may be wrong');
  answer('bad', e.code ? `${e.status} ${e.code}: ` : '', e.message);
  focusProblem();
}

function answer(kind, ...parts) {
  $('answer').dataset.kind = kind;
  $('answer').replaceChildren(...parts);
}

// problem shows what is wrong with a field next to it.
function problem(name, message) {
  const field = $('composer').querySelector(`[data-field="${CSS.escape(name)}"]`);
  if (!field || field.hidden) return;
  if (field.closest('#options')) open('options-toggle', 'options', true);
  if (field.closest('#access')) open('access-toggle', 'access', true);
  const input = field.querySelector('input:not([type=file]), select, textarea');
  const text = el('p', {class: 'problem', id: `problem-${input.id}`}, message);
  field.append(text);
  input.setAttribute('aria-invalid', 'true');
  input.setAttribute('aria-describedby', text.id);
}

function clearProblems() {
  for (const text of $('composer').querySelectorAll('.problem')) text.remove();
  for (const input of $('composer').querySelectorAll('[aria-invalid]')) {
    input.removeAttribute('aria-invalid');
    input.removeAttribute('aria-describedby');
  }
  answer('');
}

const focusProblem = () => $('composer').querySelector('[aria-invalid]')?.focus();

async function record() {
  if (composer.recorder) {
    composer.recorder.stop();
    return;
  }
  let sound;
  try {
    sound = await navigator.mediaDevices.getUserMedia({audio: true});
  } catch {
    problem('audioMessage.audio', 'cannot be recorded here: there is no microphone, or no permission for it');
    return;
  }
  const recorder = composer.recorder = new MediaRecorder(sound);
  const pieces = [];
  recorder.addEventListener('dataavailable', e => pieces.push(e.data));
  recorder.addEventListener('stop', () => {
    sound.getTracks().forEach(t => t.stop());
    composer.recorder = null;
    $('record').setAttribute('aria-pressed', 'false');
    $('record').lastElementChild.textContent = 'Record';
    choose('audio', new File(pieces, 'Recording', {type: recorder.mimeType}));
  });
  recorder.start();
  $('record').setAttribute('aria-pressed', 'true');
  $('record').lastElementChild.textContent = 'Stop';
}

// grow fits the text field to its text where CSS cannot (field-sizing).
function grow() {
  const text = $('text');
  text.style.blockSize = 'auto';
  text.style.blockSize = `${text.scrollHeight + 2}px`;
}

// ---- What the page reacts to ----

function wire() {
  $('new').onclick = $('welcome-new').onclick = () => go('new');
  $('back').onclick = () => go('');
  $('jump').onclick = () => thread.atEnd ? toEnd() : openThread(thread.number);
  $('thread').addEventListener('scroll', scrolled, {passive: true});
  $('list-scroll').addEventListener('scroll', () => {
    const box = $('list-scroll');
    if (box.scrollHeight - box.clientHeight - box.scrollTop < 600) loadMoreConversations();
  }, {passive: true});
  $('search').addEventListener('input', search);
  addEventListener('popstate', () => { takeFragment(); fillAccess(); route(); });
  addEventListener('online', () => stream.wake?.());
  addEventListener('resize', () => { if (thread.stick) toEnd(); });
  document.addEventListener('visibilitychange', () => {
    stream.wake?.();
    const c = conversations.get(thread.number);
    if (c?.unread && !document.hidden) { c.unread = 0; dirty.add(c.number); renderFrame(); }
  });
  new ResizeObserver(() => {
    $('conversation').style.setProperty('--composer', `${$('composer').offsetHeight + 14}px`);
    if (thread.stick) toEnd();
  }).observe($('composer'));

  document.addEventListener('keydown', e => {
    const typing = e.target.closest?.('input, textarea, select, dialog');
    if (e.key === '/' && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
      e.preventDefault();
      $('app').dataset.view = 'list';
      $('search').focus();
    } else if (e.key === 'Escape' && e.target === $('search')) {
      $('search').value = '';
      search();
    } else if ((e.key === 'ArrowDown' || e.key === 'ArrowUp') && (e.target === $('search') || e.target.closest?.('.list'))) {
      const entries = [...document.querySelectorAll('.list .entry')].filter(entry => entry.offsetParent);
      const next = entries[entries.indexOf(e.target) + (e.key === 'ArrowDown' ? 1 : -1)];
      e.preventDefault();
      (next ?? (e.key === 'ArrowUp' ? $('search') : null))?.focus();
    }
  });

  $('clear').onclick = () => $('sure').showModal();
  $('sure').addEventListener('close', async () => {
    if ($('sure').returnValue !== 'yes') return;
    $('sure').returnValue = '';
    try { await request('messages', {method: 'DELETE'}); } catch (e) { showState('lost', e.message); }
  });

  $('composer').addEventListener('submit', send);
  $('composer').addEventListener('focusin', () => {
    if (!access.key || !access.token) open('access-toggle', 'access', true);
  }, {once: true});
  for (const input of $('composer').elements.kind) input.addEventListener('change', () => setKind(input.value));
  $('options-toggle').onclick = () => open('options-toggle', 'options', $('options').hidden);
  $('access-toggle').onclick = () => open('access-toggle', 'access', $('access').hidden);
  $('text').addEventListener('input', grow);
  $('text').addEventListener('keydown', e => {
    if (e.key === 'Enter' && !e.shiftKey && !e.isComposing) { e.preventDefault(); $('composer').requestSubmit(); }
  });
  $('text').addEventListener('paste', e => {
    if (e.clipboardData.files.length) { e.preventDefault(); setKind('media'); choose('media', e.clipboardData.files[0]); }
  });
  for (const kind of ['media', 'audio']) {
    $(kind + '-choose').onclick = () => $(kind + '-file').click();
    $(kind + '-file').addEventListener('change', e => e.target.files[0] && choose(kind, e.target.files[0]));
  }
  $('record').hidden = !navigator.mediaDevices || !window.MediaRecorder;
  $('record').onclick = record;

  const hasFiles = e => e.dataTransfer?.types.includes('Files');
  addEventListener('dragover', e => {
    if (!hasFiles(e)) return;
    e.preventDefault(); // or the browser would leave the page for the file
    $('drop').hidden = $('conversation').hidden;
  });
  addEventListener('dragleave', e => { if (!e.relatedTarget) $('drop').hidden = true; });
  addEventListener('drop', e => {
    if (!hasFiles(e)) return;
    e.preventDefault();
    $('drop').hidden = true;
    if ($('conversation').hidden) return;
    const kind = composer.kind === 'audio' ? 'audio' : 'media';
    setKind(kind);
    choose(kind, e.dataTransfer.files[0]);
  });
}

function welcome() {
  const post = (path, json) => `curl ${place('../message/' + path)}/$TOKEN \\\n  -H "apikey: $KEY" -H 'Content-Type: application/json' \\\n  -d '${JSON.stringify(json)}'`;
  const number = '15550001234';
  $('calls').append(
    call('A text, after 1.2 seconds of “composing”', post('sendText', {number, options: {delay: 1200, presence: 'composing'}, textMessage: {text: 'Hello'}})),
    call('A document', post('sendMedia', {number, mediaMessage: {mediaType: 'document', fileName: 'hello.txt', media: 'SGVsbG8K'}})),
    call('A voice message, after two seconds of “recording”', `printf '{"number":"${number}","options":{"delay":2000,"presence":"recording"},"audioMessage":{"audio":"%s"}}' \\\n  "$(base64 < voice.ogg | tr -d '\\n')" |\n` +
      `curl ${place('../message/' + audioPath)}/$TOKEN \\\n  -H "apikey: $KEY" -H 'Content-Type: application/json' -d @-`));
}

function favicon() {
  const svg = new XMLSerializer().serializeToString($('i-logo')).replaceAll('symbol', 'svg');
  document.head.append(el('link', {rel: 'icon', type: 'image/svg+xml', href: URL.createObjectURL(new Blob([svg], {type: 'image/svg+xml'}))}));
}

takeFragment();
fillAccess();
favicon();
wire();
welcome();
setKind('text');
setInterval(() => { // "Today" ends
  markDays();
  for (const number of conversations.keys()) dirty.add(number);
  renderFrame();
}, 60_000);
route();
follow();
