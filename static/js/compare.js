// Runs side by side: keys, rows and bodies that are fetched when they are wanted, the map that shows where one is.

import { onKey } from "./keys.js";
import { elementsOf, whyNot } from "./live.js";

const MOST_CELLS = 600; // more than so many cells in the page and the far end is let go
const page = document.getElementById("compare");
const map = document.getElementById("map");
const said = document.getElementById("said");
const heads = document.getElementById("heads");
const steps = page.dataset.view === "steps";
const apart = steps && page.dataset.scroll === "apart";
const columns = Number(page.className.match(/\bof-(\d)/)?.[1] ?? 2);
let column = 0;

// A part of the page, or in the place of it why there is none.
export async function part(url) {
  try {
    const answer = await fetch(url, { headers: { "X-Requested-With": "fetch" } });
    const text = await answer.text();
    const inPlace = answer.ok || (answer.status === 400 && text.includes('class="gone"'));
    return inPlace ? { html: text, gone: !answer.ok } : { why: whyNot(answer.status) };
  } catch {
    return { why: whyNot(0) };
  }
}

// ---- what opens --------------------------------------------------------------------------------------------

function columnOf(item) {
  return apart ? item.closest(".pane")?.dataset.run : null;
}

async function load(item) {
  const place = item.querySelector(":scope > details > [data-waits]");
  if (!place || place.dataset.loading) return;
  place.dataset.loading = "yes";
  const run = columnOf(item);
  const stretch = item.matches(".stretch");
  const url = stretch
    ? `${page.dataset.rowsUrl}&within=${item.dataset.name}`
    : `${page.dataset.rowUrl}&row=${item.dataset.name}${run ? `&column=${run}` : ""}`;
  const { html, gone, why } = await part(url);
  delete place.dataset.loading;
  if (html === undefined) { place.dataset.why = why; if (!place.querySelector(".gone")) place.append(...elementsOf(`<p class="gone">${why}</p>`)); return; }
  if (!gone) delete place.dataset.waits;
  place.replaceChildren(...elementsOf(html));
  watch();
}

document.addEventListener("toggle", (event) => {
  const item = event.target.closest?.(".unit");
  if (item && event.target.parentElement === item && event.target.open) load(item);
}, true);

// ---- more as one scrolls -----------------------------------------------------------------------------------

let scrolledUp = false;
const edges = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    // What stands above comes when one goes there: a page that has just opened stays as it is.
    if (entry.isIntersecting && (entry.target.dataset.edge === "after" || scrolledUp)) more(entry.target);
  }
}, { rootMargin: "500px 0px" });

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) inView(entry.target, entry.isIntersecting);
}, { rootMargin: "-140px 0px -30px 0px" });

export function watch() {
  for (const edge of document.querySelectorAll(".edge")) edges.observe(edge);
  for (const item of document.querySelectorAll(".unit:not([data-seen])")) { item.dataset.seen = "yes"; seen.observe(item); }
}

function inView(item, yes) {
  if (!map) return;
  map.classList.add("follows");
  const from = Number(item.dataset.index), to = Number(item.dataset.last ?? item.dataset.index);
  item.dataset.inView = yes ? "yes" : "";
  for (const entry of map.children) {
    if (Number(entry.dataset.to) < from) continue;
    if (Number(entry.dataset.from) > to) break;
    entry.classList.toggle("in-view", yes);
  }
}

async function more(edge) {
  if (edge.dataset.loading || !edge.isConnected) return;
  edge.dataset.loading = "yes";
  edges.unobserve(edge);
  const link = edge.querySelector("a");
  const { html, gone, why } = await part(link.dataset.url);
  delete edge.dataset.loading;
  if (!edge.isConnected) return;
  if (html === undefined) { link.textContent = why; return; }
  const fresh = elementsOf(html).filter((item) => gone || item.matches(".edge") || !document.getElementById(item.id));
  const box = edge.closest(".pane") ?? document.scrollingElement;
  const above = edge.dataset.edge === "before";
  const height = box.scrollHeight, top = box.scrollTop;
  const list = edge.parentElement;
  edge.replaceWith(...fresh);
  // What is put in above must not move what is being read.
  if (above) box.scrollTop = top + box.scrollHeight - height;
  trim(list, above ? "after" : "before", box);
  watch();
  return fresh;
}

// A page of long runs stays small: what is far off on the other side becomes a link again.
function trim(list, side, box) {
  const units = [...list.querySelectorAll(":scope > .unit")];
  const much = units.length - Math.floor(MOST_CELLS / (apart ? 1 : columns));
  if (much <= 0) return;
  const gone = side === "before" ? units.slice(0, much) : units.slice(-much);
  const keep = side === "before" ? units[much] : units[units.length - much - 1];
  if (gone.some((item) => item.contains(document.activeElement))) return;
  const height = box.scrollHeight, top = box.scrollTop;
  const rows = gone.reduce((sum, item) => sum + (Number(item.dataset.last ?? item.dataset.index) - Number(item.dataset.index) + 1), 0);
  const run = columnOf(keep);
  const old = list.querySelector(`:scope > .edge[data-edge="${side}"]`);
  const before = Number(old?.dataset.rows ?? (old?.textContent ?? "0").replace(/\D/g, ""));
  old?.remove();
  const url = `${page.dataset.rowsUrl}${run ? `&column=${run}` : ""}&${side}=${keep.dataset.name}`;
  const edge = elementsOf(`<li class="edge" id="edge-${side}${run ? `-${run}` : ""}" data-edge="${side}"><a href="#">${(rows + before).toLocaleString("en")} ${side === "before" ? "earlier" : "later"} rows</a></li>`)[0];
  edge.firstChild.dataset.url = url;
  edge.firstChild.href = `${page.dataset.address}&at=${keep.dataset.name}`;
  // Bands among what goes, go with it.
  const all = [...list.children];
  const border = all.indexOf(keep);
  for (const item of side === "before" ? all.slice(0, border) : all.slice(border + 1)) {
    if (!item.matches(".band") || gone.includes(item.nextElementSibling)) item.remove();
  }
  if (side === "before") list.prepend(edge); else list.append(edge);
  if (side === "before") box.scrollTop = top + box.scrollHeight - height;
}

document.addEventListener("click", async (event) => {
  const link = event.target.closest?.(".edge a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const edge = link.closest(".edge");
  const fresh = await more(edge);
  const row = (edge.dataset.edge === "before" ? [...(fresh ?? [])].reverse() : fresh ?? []).find((item) => item.matches?.(".unit"));
  row?.querySelector("[data-row]")?.focus({ preventScroll: true });
});

let lastTop = window.scrollY;
document.addEventListener("scroll", (event) => {
  const box = event.target === document ? document.scrollingElement : event.target;
  const top = box.scrollTop;
  if (box === document.scrollingElement) { if (top < lastTop - 4) goneUp(); lastTop = top; }
  else { if (top < (box.lastTop ?? 0) - 4) goneUp(); box.lastTop = top; }
}, { passive: true, capture: true });
function goneUp() {
  if (scrolledUp) return;
  scrolledUp = true;
  for (const edge of document.querySelectorAll('.edge[data-edge="before"]')) { edges.unobserve(edge); edges.observe(edge); }
}

// Heads go sideways with their columns.
const rowsBox = document.getElementById("rows-scroll") ?? document.getElementById("panes");
if (rowsBox && heads) {
  rowsBox.addEventListener("scroll", () => { if (heads.scrollLeft !== rowsBox.scrollLeft) heads.scrollLeft = rowsBox.scrollLeft; }, { passive: true });
  heads.addEventListener("scroll", () => { if (rowsBox.scrollLeft !== heads.scrollLeft) rowsBox.scrollLeft = heads.scrollLeft; }, { passive: true });
}

// ---- where one is ------------------------------------------------------------------------------------------

function current() {
  return document.activeElement?.closest?.(".unit, .band") ?? null;
}

function firstInView() {
  const top = (heads?.getBoundingClientRect().bottom ?? 0) - 1;
  return [...document.querySelectorAll(".unit")].find((item) => item.getBoundingClientRect().top >= top) ?? null;
}

function focusOn(item, block = "nearest") {
  const target = item.matches(".unit") ? item.querySelector("[data-row]") : item;
  target.focus({ preventScroll: true });
  item.scrollIntoView({ block });
}

// RUN.STEP of the row one stands in: in the column one is in, if it has a step there.
function place() {
  const item = current()?.closest(".unit") ?? firstInView();
  if (!item) return null;
  const cell = item.querySelector(`.cell[data-c="${column}"]`);
  return cell ? cell.id.slice("cell-".length).replace("-", ".") : item.dataset.name;
}

// The row of a place in the alignment; it is fetched with what stands around it where it is not in the page.
async function show(index, name, block = "center") {
  const find = () => [...document.querySelectorAll(".unit")].find((item) => !item.parentElement.matches(".within") && Number(item.dataset.index) <= index && index <= Number(item.dataset.last ?? item.dataset.index) && (apart || item.parentElement.id === "rows"));
  let item = find();
  if (!item && !apart) {
    const { html } = await part(`${withoutPlace(page.dataset.rowsUrl)}&at=${name}`);
    if (html === undefined) return null;
    const list = document.getElementById("rows");
    list.replaceChildren(...elementsOf(html));
    watch();
    item = find();
  }
  if (item) focusOn(item, block);
  return item;
}
function withoutPlace(address) {
  return address.replace(/&(at|open)=[\d.]+/g, "");
}

map?.addEventListener("click", async (event) => {
  const link = event.target.closest("a");
  if (!link || apart || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const name = new URL(link.href).searchParams.get("at");
  if (!await show(Number(link.parentElement.dataset.from), name)) location.assign(link.href);
});

async function toDivergence() {
  const none = document.getElementById("no-divergence");
  if (none) { none.focus(); none.scrollIntoView({ block: "nearest" }); return true; }
  const all = [...(map?.querySelectorAll("li.divergence") ?? [])];
  if (all.length === 0) return false;
  const bands = [...document.querySelectorAll(".band")];
  const at = document.activeElement?.closest?.(".band");
  const next = bands[bands.indexOf(at) + 1];
  if (at && next) { focusOn(next, "center"); return true; }
  const name = new URL(all[0].querySelector("a").href).searchParams.get("at");
  const first = () => document.querySelector(".band:has(kbd)") ?? (apart ? document.querySelector(".band") : null);
  if (!first() && !apart) await show(Number(all[0].dataset.from), name);
  if (apart) for (const pane of document.querySelectorAll(".pane")) { const band = pane.querySelector(".band"); if (band) pane.scrollTop = band.offsetTop - pane.offsetTop - 120; }
  const band = first();
  if (band) focusOn(band, apart ? "nearest" : "center");
  return true;
}

async function toDifference(by) {
  const all = [...document.querySelectorAll("[data-difference]")].filter((item) => item.checkVisibility() && (!apart || item.closest(".pane") === paneNow()));
  const at = document.activeElement;
  const after = (item) => at && at !== document.body && (by > 0 ? at.compareDocumentPosition(item) & Node.DOCUMENT_POSITION_FOLLOWING : at.compareDocumentPosition(item) & Node.DOCUMENT_POSITION_PRECEDING) && !item.contains(at);
  const inPage = at && at !== document.body && page.contains(at);
  const rest = inPage ? all.filter(after) : all;
  const next = by > 0 ? rest[0] : rest[rest.length - 1];
  if (next) { if (next.matches(".unit")) focusOn(next); else { next.focus(); next.scrollIntoView({ block: "nearest" }); } return true; }
  const edge = document.querySelector(`.edge[data-edge="${by > 0 ? "after" : "before"}"]`);
  if (!edge || !inPage) return true;
  if (await more(edge)) return toDifference(by);
  return true;
}

// Everything the cursor stops at, in order: rows, the places where runs part, and whatever a tab's table has.
const STOPS = "[data-row], .band, .no-divergence";
const stops = () => [...(apart ? paneNow() ?? page : document).querySelectorAll(STOPS)].filter((one) => one.checkVisibility());

function step(by) {
  const all = stops();
  const at = all.findIndex((one) => one === document.activeElement || one.contains(document.activeElement));
  if (at === -1) {
    // Without a cursor yet it begins with what is in sight.
    const first = (steps && (document.querySelector(".band") ?? firstInView())) || all[by > 0 ? 0 : all.length - 1];
    if (first) go(first);
    return;
  }
  const edge = !all[at + by] && (apart ? paneNow() : document).querySelector(`.edge[data-edge="${by > 0 ? "after" : "before"}"]`);
  if (edge) { more(edge).then((fresh) => { if (fresh) step(by); }); return; }
  go(all[Math.min(Math.max(at + by, 0), all.length - 1)]);
}
function go(stop) {
  stop.focus({ preventScroll: true });
  (stop.closest(".unit, .band") ?? stop).scrollIntoView({ block: "nearest" });
}

// ---- columns -----------------------------------------------------------------------------------------------

function paneNow() {
  return document.activeElement?.closest?.(".pane") ?? document.querySelectorAll(".pane")[column] ?? null;
}

function toColumn(by) {
  const narrow = window.matchMedia("(max-width: 1199px)").matches;
  column = Math.min(Math.max(column + by, 0), (narrow ? Math.min(columns, 2) : columns) - 1);
  if (apart) {
    const pane = document.querySelectorAll(".pane")[column];
    const partner = current()?.dataset.partner;
    const item = (partner && pane.querySelector(`[data-partner="${partner}"]`)) || pane.querySelector(".unit");
    if (item) focusOn(item);
  }
  markColumn();
  document.querySelector(`.head[data-c="${column}"]`)?.scrollIntoView({ inline: "nearest", block: "nearest" });
  const row = current();
  const cell = row?.querySelector(`[data-c="${column}"]`);
  if (rowsBox && cell) {
    const box = rowsBox.getBoundingClientRect(), one = cell.getBoundingClientRect();
    if (one.left < box.left) rowsBox.scrollLeft += one.left - box.left;
    else if (one.right > box.right) rowsBox.scrollLeft += one.right - box.right;
  }
  const head = document.querySelector(`.head[data-c="${column}"]`);
  said.textContent = head ? `Column ${head.querySelector(".letter").textContent}` : "";
  return true;
}

function markColumn() {
  for (const head of document.querySelectorAll(".head")) head.classList.toggle("current", Number(head.dataset.c) === column && moved);
  for (const cell of document.querySelectorAll(".cell.current")) cell.classList.remove("current");
  if (moved) current()?.querySelector(`.cell[data-c="${column}"]`)?.classList.add("current");
}
let moved = false;

document.addEventListener("focusin", () => {
  const item = current();
  if (apart && item) {
    column = [...document.querySelectorAll(".pane")].indexOf(item.closest(".pane"));
    for (const one of document.querySelectorAll(".unit.partner")) one.classList.remove("partner");
    if (item.dataset.partner) for (const one of document.querySelectorAll(`[data-partner="${item.dataset.partner}"]`)) if (one !== item) one.classList.add("partner");
  }
  markColumn();
});

// ---- links that keep the place -----------------------------------------------------------------------------

// The address of what is seen: runs, how they are aligned and folded, where one is, and the row that is open.
function addressHere(base, { open = true } = {}) {
  const address = new URL(base, location.href);
  address.hash = "";
  for (const name of ["at", "open"]) address.searchParams.delete(name);
  const here = place();
  if (here) {
    address.searchParams.set("at", here);
    const item = current()?.closest(".unit:not(.stretch)");
    if (open && item?.querySelector(":scope > details").open) address.searchParams.set("open", here);
  }
  return decodeURIComponent(address.href);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-keeps-place]");
  if (!link || page.dataset.view !== "steps") return;
  const untouched = !current() && window.scrollY < 40;
  if (!untouched) link.href = addressHere(link.getAttribute("href"), { open: false });
}, true);

document.querySelector("[data-to-divergence]")?.addEventListener("click", (event) => {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  toDivergence();
});

async function copyLink() {
  const button = document.querySelector("[data-copy-link] [data-words]");
  const link = page.dataset.view === "steps" ? addressHere(page.dataset.address) : location.href;
  try {
    await navigator.clipboard.writeText(link);
    said.textContent = "Link copied";
  } catch {
    history.replaceState(null, "", link);
    said.textContent = "The link is in the address bar";
  }
  button.textContent = said.textContent;
}
document.querySelector("[data-copy-link]")?.addEventListener("click", copyLink);

// ---- keys --------------------------------------------------------------------------------------------------

const follow = (selector) => () => { const link = document.querySelector(selector); if (!link) return false; link.click(); return true; };
onKey("j", () => step(1));
onKey("k", () => step(-1));
onKey("]", () => { toDifference(1); });
onKey("[", () => { toDifference(-1); });
onKey("b", follow('[data-tab="steps"]'));
onKey("d", follow('[data-tab="patches"]'));
onKey("t", follow('[data-tab="tests"]'));
onKey("c", follow("[data-add-run]"));
onKey("y", () => { copyLink(); });
onKey("w", () => { document.body.classList.toggle("wrap"); });
if (steps) {
  onKey("v", () => { toDivergence(); });
  onKey("o", () => { const item = current()?.closest(".unit"); if (!item) return false; const fold = item.querySelector(":scope > details"); fold.open = !fold.open; fold.dataset.touched = "yes"; return true; });
  onKey("h", () => { moved = true; return toColumn(-1); });
  onKey("l", () => { moved = true; return toColumn(1); });
  onKey("z", follow('[data-keeps-place="fold"]'));
  onKey("s", follow('[data-keeps-place="scroll"]'));
}

// ---- start -------------------------------------------------------------------------------------------------

const bars = [["--under-bar", document.querySelector(".app-bar")], ["--heads-height", heads], ["--compare-head", document.getElementById("compare-head")]];
const measure = () => { for (const [name, one] of bars) if (one) document.documentElement.style.setProperty(name, `${one.getBoundingClientRect().height}px`); };
measure();
const resized = new ResizeObserver(measure);
for (const [, one] of bars) if (one) resized.observe(one);
watch();
for (const item of document.querySelectorAll(".unit:has(> details[open] > [data-waits])")) load(item);
if (steps && page.dataset.at) {
  const at = document.getElementById(`cell-${page.dataset.at.replace(".", "-")}`)?.closest(".unit");
  if (at) focusOn(at, "center");
}
if (apart) {
  for (const pane of document.querySelectorAll(".pane")) pane.lastTop = pane.scrollTop;
}
