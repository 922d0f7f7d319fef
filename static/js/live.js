// Live pages: one socket that says what the page has and gets what is new, clocks, and swaps that keep what the
// reader opened, focused and scrolled to.
//
// The socket is written here and not taken from hx-ws: a page must notice a half-open socket within five seconds
// and give it up without waiting for its close, take a fragment only if it is newer, and detect a gap.

const SILENCE_MS = 5000; // the server speaks every 2 s
const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 15000;
const AWAY_MS = 10000;

// Clocks show the server's time: the smallest difference seen is the one with the least delay in it.
let ahead = Infinity;
export function noteServerTime(milliseconds) {
  if (milliseconds) ahead = Math.min(ahead, Date.now() - milliseconds);
}
function serverNow() {
  return Date.now() - (Number.isFinite(ahead) ? ahead : 0);
}

export class LiveSocket {
  // `url()` gives the address with what the page has; `take(message)` returns false when something is missing.
  constructor({ url, take, say }) {
    this.url = url;
    this.take = take;
    this.say = say;
    this.wait = FIRST_WAIT_MS;
    this.lostAt = null;
    this.socket = null;
    this.stopped = false;
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.check(true); });
    window.addEventListener("online", () => this.check(true));
    window.addEventListener("pageshow", (event) => { if (event.persisted) this.connect(); });
    setInterval(() => this.check(false), 1000);
    this.connect();
  }

  connect() {
    if (this.stopped) return;
    clearTimeout(this.timer);
    this.abandon();
    const address = new URL(this.url(), location.href);
    address.protocol = address.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    this.socket = socket;
    this.heardAt = Date.now();
    socket.addEventListener("message", (event) => {
      if (socket !== this.socket) return;
      this.heardAt = Date.now();
      this.wait = FIRST_WAIT_MS;
      this.lostAt = null;
      const message = JSON.parse(event.data);
      noteServerTime(message.now);
      if (this.take(message) === false) this.connect();
      else this.say("live");
    });
    socket.addEventListener("close", () => { if (socket === this.socket) this.lost(); });
  }

  // A socket that is half open takes long to close: it is left to itself, whatever it still says is not heard.
  abandon() {
    const old = this.socket;
    this.socket = null;
    if (old && old.readyState <= WebSocket.OPEN) old.close();
  }

  lost() {
    this.abandon();
    this.lostAt ??= Date.now();
    const away = Date.now() - this.lostAt > AWAY_MS;
    this.say(away ? "away" : "reconnecting", this.lostAt);
    const wait = this.wait * (0.7 + Math.random() * 0.6);
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT_MS);
    this.timer = setTimeout(() => this.connect(), wait);
    if (away) this.askWhy();
  }

  // Signed out looks like a server that refuses sockets; a page request tells the difference.
  async askWhy() {
    try {
      const answer = await fetch(location.href, { method: "HEAD", redirect: "manual" });
      if (answer.type === "opaqueredirect") { this.stopped = true; this.say("signed-out"); }
    } catch { /* the server is away, which is what the page says */ }
  }

  check(now) {
    if (this.stopped) return;
    const silent = this.socket && Date.now() - this.heardAt > SILENCE_MS - 1000;
    if (silent) this.lost();
    if (now && !this.socket) { this.wait = FIRST_WAIT_MS; this.connect(); }
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    this.abandon();
  }
}

const WORDS = { live: "Live", reconnecting: "Reconnecting", away: "Server away", "signed-out": "Signed out: sign in again", connecting: "Connecting", complete: "Complete" };
const MARKS = { live: "ok", complete: "ok", reconnecting: "warning", away: "warning", "signed-out": "warning" };

export function showState(state, detail = "") {
  const place = document.getElementById("live-state");
  if (!place) return;
  const words = WORDS[state] + detail;
  if (place.dataset.state === state && place.dataset.words === words) return;
  place.dataset.words = words;
  place.querySelector("[data-detail]").textContent = detail;
  if (place.dataset.state === state) return;
  place.dataset.state = state;
  const mark = MARKS[state];
  place.querySelector("[data-word]").replaceChildren(...(mark ? [iconOf(mark)] : []), WORDS[state]);
}

function iconOf(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `/static/icons.svg#${name}`);
  svg.append(use);
  return svg;
}

export function awaySince(milliseconds) {
  return ` since ${new Date(milliseconds).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}`;
}

// A part of a page, or in words why there is none. A sign-in page never comes in its place.
const WHY_NOT = { 401: "You are signed out: sign in again.", 403: "This is for operators and admins only.", 404: "It is not there any more." };
export const whyNot = (status) => WHY_NOT[status] ?? "The server does not answer. Try again.";
export async function ask(url, options = {}) {
  try {
    const answer = await fetch(url, { ...options, headers: { "X-Requested-With": "fetch" } });
    return answer.ok ? { html: await answer.text() } : { why: whyNot(answer.status) };
  } catch {
    return { why: whyNot(0) };
  }
}

export function elementsOf(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return [...template.content.children];
}

// Swap an element for its newer self: folds stay as the reader left them, focus stays where it was.
export function replaceKeeping(old, fresh) {
  const folds = [...old.querySelectorAll("details")];
  [...fresh.querySelectorAll("details")].forEach((fold, index) => {
    const before = folds[index];
    if (before && before.id === fold.id && before.dataset.touched) {
      fold.open = before.open;
      fold.dataset.touched = "yes";
    }
  });
  if (old.matches("details")) fresh.open = old.open;
  const focused = old.contains(document.activeElement) ? pathOf(document.activeElement, old) : null;
  old.replaceWith(fresh);
  if (focused) fromPath(focused, fresh)?.focus({ preventScroll: true });
  window.htmx?.process?.(fresh);
  tickOne(fresh);
  return fresh;
}

function pathOf(element, root) {
  const path = [];
  for (let at = element; at !== root; at = at.parentElement) path.unshift([...at.parentElement.children].indexOf(at));
  return path;
}
function fromPath(path, root) {
  return path.reduce((at, index) => at?.children[index], root);
}

document.addEventListener("click", (event) => {
  const summary = event.target.closest?.("summary");
  if (summary && !event.target.closest("a, button")) summary.parentElement.dataset.touched = "yes";
}, true);

// One timer for every clock of the page: ten times a second where tenths are shown, once for the rest.
function clockText(milliseconds, fine) {
  const tenths = Math.max(0, Math.floor(milliseconds / 100));
  const seconds = Math.floor(tenths / 10);
  const two = (number) => String(number).padStart(2, "0");
  const minutes = Math.floor(seconds / 60);
  const text = minutes >= 60
    ? `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(seconds % 60)}`
    : `${minutes}:${two(seconds % 60)}`;
  return fine ? `${text}.${tenths % 10}` : text;
}

function tickOne(root, whole = true) {
  const now = serverNow();
  for (const clock of root.querySelectorAll(".clock[data-since]")) {
    const fine = "fine" in clock.dataset;
    if (fine || whole) clock.textContent = clockText(now - Number(clock.dataset.since), fine);
  }
  for (const meter of root.querySelectorAll("meter[data-since]")) {
    const used = (now - Number(meter.dataset.since)) / 1000;
    meter.value = used;
    const near = used >= 0.8 * meter.max;
    meter.classList.toggle("near", near);
    const left = meter.parentElement.querySelector("[data-left]");
    if (left && near) left.textContent = `${Math.max(0, Math.ceil(meter.max - used))} s left`;
    meter.closest(".pending-card")?.classList.toggle("near", near);
  }
}

let ticks = 0;
let ticking = null;
export function startClocks() {
  ticking ??= setInterval(() => { if (!document.hidden) tickOne(document, ticks++ % 10 === 0); }, 100);
}
export function stopClocks() {
  clearInterval(ticking);
  ticking = null;
}

// Lists of runs: a row takes the place of the one with its id, or goes to the list that it belongs to. A list of
// "all" keeps the rows it was served with: it is one page of many.
function takeRows(root, html) {
  for (const row of elementsOf(html)) {
    const old = document.getElementById(row.id);
    const list = [...root.querySelectorAll("[data-rows]")].find((one) => ["all", row.dataset.list].includes(one.dataset.rows));
    if (old && old.parentElement === list) replaceKeeping(old, row);
    else if (list?.dataset.rows === row.dataset.list) {
      const focused = old?.contains(document.activeElement);
      old?.remove();
      if (insertRow(list, row) && focused) row.focus({ preventScroll: true });
    }
  }
  for (const empty of root.querySelectorAll("[data-empty-for]")) {
    empty.hidden = Boolean(document.getElementById(empty.dataset.emptyFor)?.children.length);
  }
}

// The newest finished run comes first, a running one last; what waits for a slot is shown while there is room.
function insertRow(list, row) {
  const full = list.children.length >= Number(list.dataset.most);
  if (full && row.dataset.status === "queued") return false;
  if (full) list.lastElementChild.remove();
  if (row.dataset.list === "ended") list.prepend(row); else list.append(row);
  tickOne(row);
  return true;
}

const idsOf = (root) => [...root.querySelectorAll("[data-rows] > [id]")].map((row) => row.id.slice("run-".length));

const AWAY_LONG_MS = 5000;
for (const root of document.querySelectorAll("[data-live-rows]")) {
  startClocks();
  const socket = new LiveSocket({
    url: () => `${root.dataset.liveRows}?rows=${idsOf(root).join(",")}`,
    take: (message) => {
      if (message.rows) takeRows(root, message.rows);
      for (const part of elementsOf(message.parts ?? "")) {
        const old = document.getElementById(part.id);
        if (old && old.outerHTML !== part.outerHTML) replaceKeeping(old, part);
      }
    },
    say: (state, since) => showState(state, state === "away" ? awaySince(since) : ""),
  });
  // Who comes back after a while sees everything as it is now, what no run has changed included.
  let leftAt = 0;
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) leftAt = Date.now();
    else if (Date.now() - leftAt > AWAY_LONG_MS) socket.connect();
  });
}
