// Runs side by side while they go on: the socket tells that there is something new, the page fetches the rows it
// shows and takes them over by their ids. Nothing is folded or closed that was open, nothing moves that is read.

import { part, watch } from "./compare.js";
import { LiveSocket, awaySince, elementsOf, replaceKeeping, showState, startClocks } from "./live.js";

const FETCH_MS = 1000; // at most so often
const SUMMARY_MS = 5000;
const AGAIN_MS = 3000; // after a fetch that failed
const page = document.getElementById("compare");
const said = document.getElementById("said");
const steps = page.dataset.view === "steps";
const apart = page.dataset.scroll === "apart";

// The browser's own way to keep what is read in its place would add to ours.
document.documentElement.style.setProperty("overflow-anchor", "none");

// ---- what is known and what is new ---------------------------------------------------------------------------

const known = new Map([...document.querySelectorAll(".head[data-run]")].map((head) => [head.dataset.run, { seq: Number(head.dataset.until) }]));
let fetching = false;
let stale = false;
let summaryIsStale = true;
let fetchedAt = 0;
let summaryAt = Date.now();
let timer = null;

const goesOn = (run) => run.status !== undefined && run.status !== "ended";
const letterOf = (run) => document.querySelector(`#head-${run} .letter`)?.textContent ?? "";

function take(message) {
  if (!message.runs) return;
  for (const run of known.keys()) {
    const now = message.runs[run];
    if (!now) { end(`Run ${run} was removed.`); return; }
    const before = known.get(run);
    if (now.seq !== before.seq || (before.status !== undefined && now.status !== before.status)) { stale = true; summaryIsStale = true; }
    known.set(run, now);
  }
  if (stale) soon(); else endWhenAllHave();
}

function soon(wait = 0) {
  clearTimeout(timer);
  if (fetching) return;
  timer = setTimeout(refresh, Math.max(wait, fetchedAt + FETCH_MS - Date.now(), 0));
}

async function refresh() {
  if (!steps) { offer(); return; }
  fetching = true;
  stale = false;
  fetchedAt = Date.now();
  const allEnded = ![...known.values()].some(goesOn);
  const summary = summaryIsStale && (allEnded || Date.now() - summaryAt >= SUMMARY_MS);
  const asked = address(summary);
  const { html } = await part(asked);
  fetching = false;
  if (complete) return;
  if (html === undefined) { stale = true; soon(AGAIN_MS); return; }
  // The reader went on to other rows, or folded some, while it was on its way.
  if (asked !== address(summary)) { stale = true; soon(); return; }
  if (summary) { summaryAt = Date.now(); summaryIsStale = false; }
  takeOver(html);
  if (stale) soon();
  else if (summaryIsStale) { if (!allEnded) { stale = true; soon(SUMMARY_MS); } else soon(); }
  endWhenAllHave();
}

// The other views hold figures that a reader may be in the midst of: they come when asked for.
function offer() {
  stale = false;
  if (document.getElementById("compare-newer")) return;
  const link = elementsOf('<a class="button compact" id="compare-newer">Newer figures are there: show them</a>')[0];
  link.href = location.href;
  document.querySelector(".tabs-end")?.prepend(link);
  endWhenAllHave();
}

function endWhenAllHave() {
  if (complete || fetching || stale || [...known.values()].some((run) => run.status !== "ended")) return;
  end("All runs have ended.");
}

let complete = false;
function end(words) {
  complete = true;
  clearTimeout(timer);
  socket.stop();
  showState("complete");
  said.textContent = words;
}

// ---- what the page holds, as the server is asked for it -------------------------------------------------------

const unitsIn = (list) => [...list.querySelectorAll(":scope > .unit")];
const countOf = (unit) => Number(unit.dataset.last ?? unit.dataset.index) - Number(unit.dataset.index) + 1;
const hasEdge = (list, side) => Boolean(list.querySelector(`:scope > .edge[data-edge="${side}"]`));

function address(summary) {
  const asked = new URLSearchParams(page.dataset.address.replace(/^\?/, ""));
  for (const list of document.querySelectorAll("#rows, .pane > .aligned")) {
    const units = unitsIn(list);
    if (apart) {
      const number = (unit) => unit?.dataset.name.split(".")[1] ?? "";
      asked.append("pane", `${list.id.slice("pane-".length)}:${number(units[0]) || 1}:${hasEdge(list, "after") ? number(units.at(-1)) : ""}`);
      continue;
    }
    if (units[0] && hasEdge(list, "before")) asked.set("from", units[0].dataset.name);
    if (units[0] && hasEdge(list, "after")) asked.set("to", units.at(-1).dataset.name);
    asked.set("folded", units.filter((unit) => unit.matches(".stretch")).map((unit) => `${unit.dataset.name}:${countOf(unit)}`).join(","));
  }
  if (summary) asked.set("summary", "1");
  return `/compare/live?${asked}`;
}

// ---- taking over ----------------------------------------------------------------------------------------------

const cellsOf = (unit) => [...unit.querySelectorAll(":scope > details > summary > .cell")].map((cell) => cell.id);
const purgesIn = (root) => [...root.querySelectorAll(".head[data-purges]")].reduce((sum, head) => sum + Number(head.dataset.purges), 0);
const unitOfCells = (ids) => ids.map((id) => document.getElementById(id)?.closest(".unit")).find(Boolean) ?? null;

function takeOver(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  const fresh = template.content;
  // A leaked secret was purged: nothing that this page shows may stay.
  if (purgesIn(fresh) > purgesIn(document)) { location.reload(); return; }
  const keep = anchor();
  const focused = standsIn();
  for (const list of document.querySelectorAll("#rows, .pane > .aligned")) {
    const other = fresh.querySelector(`#${list.id}`);
    if (other) takeList(list, other);
  }
  takeHeads(fresh);
  takeMap(fresh);
  takeBand(fresh);
  const summary = [document.getElementById("compare-summary"), fresh.querySelector("#compare-summary")];
  if (summary[0] && summary[1] && !isRead(summary[0])) replaceKeeping(...summary);
  focused();
  keep();
  watch();
}

// Puts back what the reader looks at to where it was: the row that has the focus if it is in sight, else the first one.
function anchor() {
  const top = document.getElementById("heads")?.getBoundingClientRect().bottom ?? 0;
  const places = apart ? [...document.querySelectorAll(".pane")] : [document.scrollingElement];
  const kept = places.map((box) => {
    const edge = apart ? box.getBoundingClientRect().top : top;
    const inSight = (one) => { const place = one.getBoundingClientRect(); return place.bottom > edge && place.top < window.innerHeight; };
    const here = document.activeElement?.closest?.(".unit, .band");
    const unit = here && box.contains(here) && inSight(here) ? here : [...box.querySelectorAll(".aligned > .unit, .aligned > .band")].find(inSight);
    return unit ? { box, unit, ids: cellsOf(unit), top: unit.getBoundingClientRect().top } : null;
  }).filter(Boolean);
  return () => {
    for (const { box, unit, ids, top: before } of kept) {
      const now = unit.isConnected ? unit : unitOfCells(ids);
      const by = now ? now.getBoundingClientRect().top - before : 0;
      if (Math.abs(by) >= 1) box.scrollTop += by;
    }
  };
}

// Focus goes with the step, also where its row is another one now.
function standsIn() {
  const unit = document.activeElement?.closest?.(".unit");
  const ids = unit ? cellsOf(unit) : [];
  const link = document.activeElement?.closest?.("#map li");
  const from = link?.dataset.from;
  return () => {
    if (document.activeElement && document.activeElement !== document.body) return;
    const target = from !== undefined
      ? document.querySelector(`#map li[data-from="${from}"] a`)
      : unitOfCells(ids)?.querySelector("[data-row]");
    target?.focus({ preventScroll: true });
  };
}

// Whether the reader stands in it or has chosen some of its text.
function isRead(element) {
  const selection = document.getSelection();
  return element.contains(document.activeElement) || (selection && !selection.isCollapsed && selection.intersectsNode(element));
}

function takeList(list, fresh) {
  const items = [...fresh.children];
  const stay = new Set(items.map((item) => item.id));
  // What was open goes on to the row that its steps are in now.
  const opened = unitsIn(list).filter((unit) => !stay.has(unit.id) && !unit.matches(".stretch") && unit.querySelector(":scope > details").open).map(cellsOf);
  for (const old of [...list.children]) if (!stay.has(old.id)) old.remove();
  let at = list.firstElementChild;
  for (const item of items) {
    const old = item.id && list.querySelector(`:scope > #${CSS.escape(item.id)}`);
    if (!old) {
      const made = document.importNode(item, true);
      made.querySelector(":scope > details[open]")?.removeAttribute("open");
      list.insertBefore(made, at);
      continue;
    }
    if (old === at) at = at.nextElementSibling;
    else list.insertBefore(old, at);
    takeItem(old, item);
  }
  for (const ids of opened) {
    const fold = unitOfCells(ids)?.querySelector(":scope > details");
    if (fold) fold.open = true;
  }
}

const sent = new WeakMap(); // a row as it came last, without the marks of this page
function takeItem(old, fresh) {
  for (const name of ["index", "last", "name", "partner", "difference"]) {
    if (fresh.dataset[name] === undefined) delete old.dataset[name];
    else old.dataset[name] = fresh.dataset[name];
  }
  const [before, after] = [old, fresh].map((item) => item.querySelector(":scope > details > summary") ?? item);
  const html = after.innerHTML;
  if ((sent.get(old) ?? before.innerHTML) === html) return;
  sent.set(old, html);
  if (before.contains(document.activeElement) && document.activeElement !== before) {
    replaceKeeping(before, document.importNode(after, true));
  } else {
    before.replaceChildren(...document.importNode(after, true).childNodes);
  }
  if (old.matches(".unit:not(.stretch)")) bodyIsOld(old);
}

// What a row opened says less than there is by now: fetched again at once where it is open, else when it opens.
async function bodyIsOld(unit) {
  const body = unit.querySelector(":scope > details > .opened");
  if (!body || "waits" in body.dataset) return;
  if (!unit.querySelector(":scope > details").open) { body.dataset.waits = ""; return; }
  const run = apart ? `&column=${unit.closest(".pane").dataset.run}` : "";
  const { html, gone } = await part(`${page.dataset.rowUrl}&row=${unit.dataset.name}${run}`);
  if (html === undefined || gone || !body.isConnected) return;
  if (isRead(body)) { sent.delete(unit); return; }
  const keep = anchor();
  const folds = [...body.querySelectorAll("details")].map((fold) => fold.open);
  body.replaceChildren(...elementsOf(html));
  [...body.querySelectorAll("details")].forEach((fold, place) => { if (folds[place] !== undefined) fold.open = folds[place]; });
  keep();
}

function takeHeads(fresh) {
  for (const head of fresh.querySelectorAll(".head[id]")) {
    const old = document.getElementById(head.id);
    if (!old) continue;
    old.dataset.until = head.dataset.until;
    for (const line of [".head-1", ".head-2"]) {
      const [now, then] = [head.querySelector(line), old.querySelector(line)];
      if (now && then && now.outerHTML !== then.outerHTML) replaceKeeping(then, document.importNode(now, true));
    }
  }
}

function takeMap(fresh) {
  const [map, other] = [document.getElementById("map"), fresh.querySelector("#map")];
  if (!map || !other) return;
  map.replaceChildren(...document.importNode(other, true).children);
  const units = [...document.querySelectorAll(".aligned > .unit")];
  for (const entry of map.children) {
    const holds = (unit) => Number(unit.dataset.index) <= Number(entry.dataset.to) && Number(unit.dataset.last ?? unit.dataset.index) >= Number(entry.dataset.from);
    entry.classList.toggle("shown", units.some(holds));
    entry.classList.toggle("in-view", units.some((unit) => unit.dataset.inView && holds(unit)));
  }
}

// Above the rows stands that they do not part for good, or that nothing is recorded; a band among them says where.
function takeBand(fresh) {
  const [old, now] = [document.getElementById("no-divergence"), fresh.querySelector("#no-divergence")];
  if (document.querySelector(".aligned > .unit")) document.querySelector(".compare-columns > .empty")?.remove();
  if (old && now) { if (old.outerHTML !== now.outerHTML) replaceKeeping(old, document.importNode(now, true)); }
  else if (old) old.remove();
  else if (now) document.querySelector("#rows-scroll, #panes")?.before(document.importNode(now, true));
}

// ---- start ----------------------------------------------------------------------------------------------------

function progress() {
  const told = [...known].filter(([, run]) => goesOn(run)).map(([run]) => `${letterOf(run)} ${run.status ?? ""}`.trim());
  return told.length ? ` · ${told.join(", ")} going on` : "";
}

startClocks();
const socket = new LiveSocket({
  url: () => page.dataset.live,
  take,
  say: (state, since) => {
    if (!complete) showState(state, state === "away" ? awaySince(since) : state === "live" ? progress() : "");
  },
});
