// The page of one run: takes what is new, follows the end, moves between steps, loads what lies further off.

import { onKey } from "./keys.js";
import "./run_asks.js";
import { LiveSocket, ask, awaySince, elementsOf, noteServerTime, replaceKeeping, showState, startClocks, stopClocks } from "./live.js";
import { firstSeqOf, fold, foldAll, keepHeights, loadNearEdges, loadOpen, openSection as openPart, shrinkHead, watchView } from "./step_list.js";

const MOST_STEPS = 180; // more than this many items in the page and the far end is let go
const NEAR_END = 120;

const run = document.getElementById("run");
const steps = document.getElementById("steps");
const map = document.getElementById("minimap");
const newSteps = document.getElementById("new-steps");
const base = `/runs/${run.dataset.run}`;
let lastSeq = Number(run.dataset.lastSeq);
let following = run.dataset.follow === "on";
let unseen = 0;
let logEnd = Infinity; // the run's last number, once it is known that it has ended
let ended = document.getElementById("part-badge").dataset.ended === "yes";
let finishing = ended;
// A run that infrastructure ended may be given another attempt: its page goes on listening.
const mayReopen = () => document.getElementById("part-badge").dataset.reopens === "yes";

const items = () => [...steps.querySelectorAll(":scope > li[data-seqs]")];
const atLogEnd = () => !document.getElementById("more-after");
const startOfAttempt = () => Number(document.getElementById("part-earlier").dataset.start);

// ---- what is new -------------------------------------------------------------------------------------------

function take(message) {
  // A leaked secret was purged: nothing that this page shows may stay.
  if (message.reload) { location.reload(); return true; }
  if (message.after > lastSeq) return false;
  if (message.steps !== undefined) {
    const before = lastSeq;
    takeSteps(message.steps);
    takeMap(message.map);
    lastSeq = Math.max(lastSeq, message.seq);
    if (lastSeq > before) document.getElementById("no-steps").hidden = true;
  }
  if (message.parts) for (const part of elementsOf(message.parts)) takePart(part);
  if (message.draft !== undefined) takeDraft(message);
  if (message.status) {
    const before = ended;
    ended = message.status === "ended";
    logEnd = message.last;
    if (before && !ended) goOn();
  }
  // What stands beside the steps may come before them: the page is complete when both are there.
  if (ended && lastSeq >= logEnd && !finishing) {
    finishing = true;
    tellEnd();
    setTimeout(() => { if (ended) finish(); }, 1000);
  }
  if (following) toEnd();
  return true;
}

function finish() {
  if (!mayReopen()) socket?.stop();
  stopClocks();
  document.querySelector("[data-follow-button]").hidden = true;
  following = false;
  newSteps.hidden = true;
  say("complete");
}

function goOn() {
  finishing = false;
  startClocks();
  document.querySelector("[data-follow-button]").hidden = false;
  follow(false);
}

function takeSteps(html) {
  for (const fresh of elementsOf(html)) {
    const old = document.getElementById(fresh.id);
    if (old) {
      if (Number(old.dataset.lastSeq) >= Number(fresh.dataset.lastSeq)) continue;
      const oldFold = old.querySelector(":scope > article > details");
      const freshFold = fresh.querySelector(":scope > article > details");
      const item = replaceKeeping(old, fresh);
      // An open step stays open while it is the newest one, whatever has become of it.
      if (oldFold && freshFold && !oldFold.dataset.touched) freshFold.open = oldFold.open || freshFold.open;
      if (item === steps.lastElementChild) count();
    } else if (atLogEnd() || firstSeqOf(fresh) < lastShown()) {
      insert(fresh);
    } else {
      unseen += 1;
    }
  }
  showNew();
  tellStep();
}

function lastShown() {
  const all = items();
  return all.length ? firstSeqOf(all[all.length - 1]) : 0;
}

function insert(fresh) {
  const next = items().reverse().find((item) => firstSeqOf(item) < firstSeqOf(fresh));
  if (fresh.matches(".step") && next) foldPrevious();
  if (next) next.after(fresh);
  else if (document.getElementById("more-before")) document.getElementById("more-before").after(fresh);
  else steps.prepend(fresh);
  fresh.classList.add("arrived");
  window.htmx?.process?.(fresh);
  if (!following && fresh.matches(".step")) unseen += 1;
  count();
  trim("before");
}

// The step that was the newest folds when the next one comes, unless it is to stay open or the reader is in it.
function foldPrevious() {
  if (!following) return;
  const last = items().reverse().find((item) => item.matches(".step"));
  const fold = last?.querySelector(":scope > article > details");
  if (!fold || fold.dataset.touched || "keepOpen" in fold.dataset || last.contains(document.activeElement)) return;
  fold.open = false;
}

function count() {
  if (!atLogEnd()) return;
  const start = startOfAttempt();
  const last = items().reverse().find((item) => item.matches(".step") && firstSeqOf(item) >= start);
  const many = last?.dataset.step ?? "0";
  const attempt = start > 1 && last ? ` in attempt ${last.dataset.attempt}` : "";
  document.getElementById("step-count").textContent = `${many} step${many === "1" ? "" : "s"}${attempt}`;
}

// ---- what is said aloud: the newest thing at most every 5 s, and how the run ended ---------------------------

const SAY_EVERY_MS = 5000;
const said = document.getElementById("said");
let saidAt = 0;
let toSay = "";
let saying = null;
function announce(words) {
  if (words === toSay || finishing) return;
  toSay = words;
  saying ??= setTimeout(() => { saying = null; saidAt = Date.now(); said.textContent = toSay; }, Math.max(0, saidAt + SAY_EVERY_MS - Date.now()));
}

function tellStep() {
  const step = items().reverse().find((item) => item.matches(".step"));
  if (step) announce(`${step.querySelector("article").getAttribute("aria-label").slice(0, 80)}: ${step.dataset.state}`);
}

function tellEnd() {
  clearTimeout(saying);
  said.textContent = `The run has ended: ${badgeWord()}`;
}

function badgeWord() { return document.getElementById("part-badge").textContent.trim(); }

// ---- earlier attempts are folded, unless one of them is asked for ------------------------------------------

let earlierShown = false;
let folded = false;
function foldEarlier() {
  const start = earlierShown ? 1 : startOfAttempt();
  if (start <= 1 && !folded) return;
  folded = start > 1;
  for (const item of items()) item.hidden = firstSeqOf(item) < start;
  for (const entry of map.children) entry.hidden = Number(entry.id.slice("map-event-".length)) < start;
  const edge = document.getElementById("more-before");
  if (edge) edge.hidden = Number(edge.dataset.seq) <= start;
}

// A new attempt folds the one before it; for a reader who is in that one it stays as it is.
function takeEarlier() {
  earlierShown ||= !following || [...steps.children].some((item) => item.contains(document.activeElement));
  foldEarlier();
  count();
}

function takeMap(html) {
  if (!html) return;
  if (map.children.length >= 400) { reloadMap(); return; }
  for (const entry of elementsOf(html)) {
    const old = document.getElementById(entry.id);
    if (old) { if (old.innerHTML !== entry.innerHTML || old.className !== entry.className) old.replaceWith(entry); }
    else map.append(entry);
  }
  dense();
}

function dense() {
  map.parentElement.classList.toggle("dense", map.children.length > 60);
  foldEarlier();
}

let mapAt = 0;
async function reloadMap() {
  if (Date.now() - mapAt < 10000) return;
  mapAt = Date.now();
  const { html } = await ask(`${base}/map`);
  if (html !== undefined) map.innerHTML = html;
  dense();
}

function takePart(fresh) {
  const old = document.getElementById(fresh.id);
  if (!old || old.outerHTML === fresh.outerHTML) return;
  if (fresh.id === "part-results") keepLoaded(old, fresh);
  replaceKeeping(old, fresh);
  if (fresh.id === "part-results") loadOpen(fresh);
  if (fresh.id === "part-earlier") takeEarlier();
  if (fresh.id === "part-badge") takeBadge();
}

// The tab is called by what its badge says.
const titleBefore = document.title.split(" · ");
function takeBadge() {
  document.title = [...titleBefore.slice(0, -2), badgeWord(), titleBefore[titleBefore.length - 1]].join(" · ");
  // While it runs its steps are news, and this comes after the first of them.
  if (badgeWord() !== "running") announce(`The run is ${badgeWord()}`);
}

// What was fetched into the old results goes into the new ones.
function keepLoaded(old, fresh) {
  for (const place of fresh.querySelectorAll("[data-lazy]")) {
    const before = [...old.querySelectorAll("[data-loaded]")].find((one) => one.dataset.loaded === place.dataset.lazy);
    if (before) place.replaceWith(before);
  }
}

function takeDraft(message) {
  const open = items().reverse().find((item) => item.dataset.state === "answering");
  const place = open?.querySelector("[data-draft]");
  if (!place || Number(place.dataset.draft) !== message.step || Number(place.dataset.version ?? 0) > message.version) return;
  place.dataset.version = message.version;
  place.replaceChildren(...elementsOf(message.draft));
}

function say(state, since) {
  if (ended && state === "live") state = "complete";
  const detail = {
    live: ` · event ${lastSeq} · nothing missed`,
    reconnecting: `, last event ${lastSeq}`,
    complete: ` · event ${lastSeq} · nothing missed`,
    away: since ? awaySince(since) : "",
  }[state];
  showState(state, detail ?? "");
}

// ---- following the end -------------------------------------------------------------------------------------

function toEnd() { window.scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" }); }
function nearEnd() { return window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - NEAR_END; }

// Steps get their true heights when they are first laid out, which is after the scroll to where the end was thought.
new ResizeObserver(() => { if (following) toEnd(); }).observe(steps);

function follow(on) {
  following = on && !ended;
  const button = document.querySelector("[data-follow-button]");
  button?.setAttribute("aria-pressed", String(following));
  const words = document.querySelector("[data-follow-words]");
  if (words) words.textContent = following ? "Following the end" : "Not following";
  if (following) unseen = 0;
  showNew();
}

function showNew() {
  newSteps.hidden = unseen === 0 || following;
  newSteps.querySelector("[data-words]").textContent = `${unseen} new step${unseen === 1 ? "" : "s"}`;
}

async function goToEnd() {
  if (!atLogEnd()) await show("end");
  const all = items();
  all[all.length - 1]?.querySelector("[data-row]")?.focus({ preventScroll: true });
  if (!ended) follow(true);
  toEnd();
}

async function goToStart() {
  follow(false);
  if (document.getElementById("more-before")?.hidden === false) await show("start");
  window.scrollTo({ top: 0, behavior: "instant" });
  items().find((item) => item.matches(".step") && !item.hidden)?.querySelector("[data-row]")?.focus({ preventScroll: true });
}

// Another window of the log in the place of the one shown.
async function show(where) {
  const query = where === "end" ? `before=${lastSeq + 1}` : `after=${earlierShown ? 0 : startOfAttempt() - 1}`;
  const { html } = await ask(`${base}/steps?${query}`);
  if (html === undefined) return;
  steps.replaceChildren(...elementsOf(html));
  window.htmx?.process?.(steps);
  watchEdges();
  unseen = 0;
  showNew();
}

let lastTop = window.scrollY;
window.addEventListener("scroll", () => {
  if (window.scrollY < lastTop - 4 && following && !nearEnd()) follow(false);
  else if (!following && !ended && atLogEnd() && nearEnd() && window.scrollY > lastTop) follow(true);
  lastTop = window.scrollY;
  shrinkHead();
}, { passive: true });

// ---- more as one scrolls -----------------------------------------------------------------------------------

const watchEdges = loadNearEdges(steps, trim);

// A page of a long run stays small: what is far off on the other side becomes a link again.
function trim(side) {
  const all = items();
  const much = all.length - MOST_STEPS;
  if (much <= 0 || (side === "after" && following)) return;
  const gone = side === "before" ? all.slice(0, much) : all.slice(-much);
  const height = document.documentElement.scrollHeight;
  const top = window.scrollY;
  const seqs = gone.flatMap((item) => item.dataset.seqs.split(",").map(Number));
  document.getElementById(`more-${side}`)?.remove();
  const seq = side === "before" ? Math.max(...seqs) + 1 : Math.min(...seqs) - 1;
  const edge = elementsOf(`<li class="more-steps" id="more-${side}" data-more="${side}" data-seq="${seq}"><a href="?at=${seq}" data-url="${base}/steps?${side}=${seq}">${side === "before" ? "Earlier" : "Later"} steps</a></li>`)[0];
  if (side === "before") gone[gone.length - 1].after(edge); else gone[0].before(edge);
  for (const item of gone) item.remove();
  if (side === "before" && !following) window.scrollTo({ top: top + document.documentElement.scrollHeight - height, behavior: "instant" });
  watchEdges();
}

// ---- keys --------------------------------------------------------------------------------------------------

function current() {
  const focused = document.activeElement?.closest?.("#steps > li");
  return focused ?? items().reverse().find((item) => item.matches(".step")) ?? null;
}
const openAll = () => foldAll(items());
function toMarked(direction) {
  const all = items().filter((item) => !item.hidden);
  const at = all.indexOf(current());
  const rest = direction > 0 ? all.slice(at + 1) : all.slice(0, Math.max(at, 0)).reverse();
  const next = rest.find((item) => item.dataset.marks);
  if (!next) return false;
  follow(false);
  (next.querySelector("[data-row]") ?? next.querySelector("summary") ?? next).focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}
function openSection(id) {
  if (!document.getElementById(id)) return false;
  follow(false);
  return openPart(id);
}
async function copyLink() {
  const item = current();
  if (!item) return;
  const link = `${location.origin}${base}/?at=${firstSeqOf(item)}`;
  try { await navigator.clipboard.writeText(link); said.textContent = "Link copied"; } catch { history.replaceState(null, "", link); said.textContent = "The link is in the address bar"; }
}

onKey("o", () => fold(current()));
onKey("O", openAll);
onKey("e", goToEnd);
onKey("b", goToStart);
onKey("f", () => { follow(!following); if (following) goToEnd(); });
onKey("d", () => openSection("patch"));
onKey("t", () => openSection("tests"));
onKey("c", () => document.querySelector("[data-compare]")?.click());
onKey("a", () => { const button = document.querySelector("[data-label-run]"); if (!button) return false; button.click(); return true; });
onKey("y", copyLink);
onKey("]", () => toMarked(1));
onKey("[", () => toMarked(-1));
onKey("w", () => { document.body.classList.toggle("wrap"); });
document.addEventListener("keydown", (event) => { if (event.key === "k" && following && document.activeElement?.closest?.("#steps")) follow(false); });
newSteps.addEventListener("click", goToEnd);
document.querySelector("[data-follow-button]")?.addEventListener("click", () => { follow(!following); if (following) goToEnd(); });
document.querySelector("[data-open-all]").addEventListener("click", openAll);
map.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  const target = link && document.getElementById(link.dataset.target);
  if (!target) return; // the link loads the window around it
  event.preventDefault();
  follow(false);
  fold(target, true);
  target.querySelector("[data-row]")?.focus({ preventScroll: true });
  target.scrollIntoView({ block: "start" });
});
watchView(steps, items, foldEarlier);

// ---- start -------------------------------------------------------------------------------------------------

keepHeights();
noteServerTime(Number(run.dataset.now));
earlierShown = Boolean(run.dataset.at) && Number(run.dataset.at) < startOfAttempt();
if (map.dataset.lazyMap) reloadMap();
dense();
watchEdges();
loadOpen(document);
if (window.matchMedia("(max-width: 1199px)").matches) {
  for (const part of document.querySelectorAll("details.side-part")) part.open = false;
}
const openAtStart = run.dataset.at ? items().find((item) => item.dataset.seqs.split(",").includes(run.dataset.at)) : null;
if (openAtStart) { fold(openAtStart, true); openAtStart.querySelector("[data-row]")?.focus({ preventScroll: true }); openAtStart.scrollIntoView({ block: "start" }); }
let socket = null;
const listen = () => new LiveSocket({ url: () => `${run.dataset.live}?after=${lastSeq}`, take, say });
if (ended) {
  say("complete");
  if (mayReopen()) socket = listen();
} else {
  const newest = items().reverse().find((item) => item.matches(".step"))?.querySelector(":scope > article > details");
  if (newest && following) newest.open = true;
  startClocks();
  socket = listen();
  if (following) toEnd();
}
