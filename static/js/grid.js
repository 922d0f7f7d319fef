// The grid of an experiment: one tab stop, arrows move the cell; filters without a request; cells that change
// while one watches, in their places.
import { onKey } from "./keys.js";
import { LiveSocket, ask, awaySince, elementsOf, replaceKeeping, showState, startClocks } from "./live.js";

const root = document.getElementById("experiment");
const grid = document.getElementById("grid");

// ---- the cursor: one link of the grid is the tab stop ----

let stop = null;

function makeStop(link) {
  if (!link || link === stop) return;
  stop?.setAttribute("tabindex", "-1");
  link.setAttribute("tabindex", "0");
  stop = link;
}

function shownRows() {
  return [...grid.tBodies[0].rows].filter((row) => !row.hidden);
}

const cellsOf = (row) => [...row.cells];
const linkOf = (cell) => cell?.querySelector("a");

function here() {
  const cell = document.activeElement?.closest?.("#grid td, #grid th");
  return cell && grid.contains(cell) ? cell : null;
}

function focusCell(row, column) {
  const cells = cellsOf(row);
  const link = linkOf(cells[Math.min(column, cells.length - 1)]);
  if (!link) return false;
  makeStop(link);
  link.focus();
  return true;
}

function moveDown(by) {
  const cell = here();
  if (!cell) return false;
  const column = cell.cellIndex;
  let row = cell.parentElement;
  const next = () => (by > 0 ? row.nextElementSibling : row.previousElementSibling);
  for (row = next(); row; row = next()) {
    if (!row.hidden && focusCell(row, column)) return true;
  }
  return true;
}

function moveAcross(by) {
  const cell = here();
  if (!cell) return false;
  const cells = cellsOf(cell.parentElement);
  for (let at = cell.cellIndex + by; at >= 0 && at < cells.length; at += by) {
    if (linkOf(cells[at])) return focusCell(cell.parentElement, at);
  }
  return true;
}

function toEdge(last) {
  const cell = here();
  if (!cell) return false;
  const runs = cellsOf(cell.parentElement).map((one, index) => (one.dataset.group ? index : -1)).filter((index) => index >= 0);
  return focusCell(cell.parentElement, last ? runs.at(-1) : runs[0]);
}

function enterGrid() {
  for (const row of shownRows()) if (focusCell(row, 1)) return true;
  return false;
}

if (grid) {
  for (const link of grid.querySelectorAll("a")) link.setAttribute("tabindex", "-1");
  makeStop(linkOf(shownRows()[0]?.cells[1]) ?? linkOf(shownRows()[0]?.cells[0]));
  grid.addEventListener("focusin", (event) => makeStop(event.target.closest("a")));
  onKey("ArrowDown", () => moveDown(1));
  onKey("ArrowUp", () => moveDown(-1));
  onKey("ArrowRight", () => moveAcross(1));
  onKey("ArrowLeft", () => moveAcross(-1));
  onKey("Home", () => toEdge(false));
  onKey("End", () => toEdge(true));
  onKey("j", () => (here() ? moveDown(1) : enterGrid()));
  onKey("k", () => (here() ? moveDown(-1) : enterGrid()));
  onKey(" ", choose);
  onKey("c", compare);
  for (let digit = 1; digit <= 9; digit += 1) {
    onKey(String(digit), () => {
      const link = root.querySelector(`[data-digit="${digit}"]`);
      if (!link) return false;
      filterBy(link.dataset.filter);
      return true;
    });
  }
}

// Buttons whose key is written on them.
for (const key of ["p", "a", "x", "+"]) {
  onKey(key, () => {
    const button = document.querySelector(`[data-key-of="${key}"]`);
    button?.click();
    return Boolean(button);
  });
}

// Menus close at a click elsewhere, and at Esc.
const openMenus = () => [...document.querySelectorAll("details.menu[open]")];
document.addEventListener("click", (event) => {
  for (const menu of openMenus()) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of openMenus()) {
    if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
    menu.open = false;
  }
});

// ---- choosing runs and comparing ----

function chosen() {
  return [...grid.querySelectorAll('td[aria-selected="true"]')].map((cell) => cell.id.slice("cell-".length));
}

function choose() {
  const cell = here();
  if (!cell?.dataset.group) return false;
  cell.setAttribute("aria-selected", cell.getAttribute("aria-selected") === "true" ? "false" : "true");
  return true;
}

// The runs of a row that have begun, or all of them while fewer than two have.
function runsOf(row) {
  const cells = [...row.querySelectorAll("td[data-group]")];
  const begun = cells.filter((cell) => cell.dataset.group !== "queued");
  return (begun.length > 1 ? begun : cells).map((cell) => cell.id.slice("cell-".length));
}

// More runs than fit lead to the page on which one chooses among them.
function compare() {
  const picked = chosen();
  const row = here()?.parentElement;
  const runs = picked.length > 1 ? picked : row ? runsOf(row) : [];
  if (runs.length === 0) return false;
  location.assign(`/compare/?runs=${runs.join(",")}`);
  return true;
}

// On narrow pages what stands beside the grid stands above it, folded.
if (matchMedia("(max-width: 1199px)").matches) document.querySelector(".side-fold")?.removeAttribute("open");

// ---- filters, contents and the height of rows: without a request, and kept in the address ----

function remember(name, value, usual) {
  const url = new URL(location.href);
  if (value === usual) url.searchParams.delete(name); else url.searchParams.set(name, value);
  history.replaceState(null, "", url);
}

function current(links, value, name) {
  for (const link of links) {
    if (link.dataset[name] === value) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
  }
}

function filterBy(key) {
  const asks = key === "all" ? null : key === "flagged" ? "td[data-flagged]" : `td[data-group="${key}"]`;
  let any = false;
  for (const row of grid.tBodies[0].rows) {
    row.hidden = asks !== null && !row.querySelector(asks);
    any ||= !row.hidden;
  }
  grid.dataset.show = key;
  const links = root.querySelectorAll("nav [data-filter]");
  current(links, key, "filter");
  const word = [...links].find((link) => link.dataset.filter === key)?.firstChild?.textContent ?? key;
  const nothing = document.getElementById("grid-nothing");
  nothing.hidden = any;
  nothing.querySelector("[data-shown]").textContent = word.trim() || key;
  if (stop?.closest("tr")?.hidden) makeStop(linkOf(shownRows()[0]?.cells[1]));
  remember("show", key, "all");
}

root.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-filter], a[data-cell], a[data-rows]");
  if (!link || !grid || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if (link.dataset.filter) filterBy(link.dataset.filter);
  for (const name of ["cell", "rows"]) {
    if (!link.dataset[name]) continue;
    grid.dataset[name] = link.dataset[name];
    current(root.querySelectorAll(`a[data-${name}]`), link.dataset[name], name);
    remember(name, link.dataset[name], name === "cell" ? "cost" : null);
  }
});

// ---- live ----

let mark = root.dataset.mark;

function takeCell(fresh) {
  const old = document.getElementById(fresh.id);
  if (!old || Number(old.dataset.seq ?? 0) > Number(fresh.dataset.seq ?? 0) || old.outerHTML === fresh.outerHTML) return;
  const wasStop = stop && old.contains(stop);
  if (old.getAttribute("aria-selected") === "true") fresh.setAttribute("aria-selected", "true");
  for (const link of fresh.querySelectorAll("a")) link.setAttribute("tabindex", wasStop ? "0" : "-1");
  if (wasStop) stop = fresh.querySelector("a");
  replaceKeeping(old, fresh);
  if (wasStop && !stop) makeStop(linkOf(shownRows()[0]?.cells[1]));
}

// What a viewer may ask depends on who that is, so it does not come with what all are sent.
async function refreshAsks() {
  if (!document.getElementById("experiment-asks")) return;
  const { html } = await ask(location.href);
  if (!html) return;
  const page = new DOMParser().parseFromString(html, "text/html");
  for (const name of ["experiment-asks", "experiment-more-asks"]) {
    const [old, fresh] = [document.getElementById(name), page.getElementById(name)];
    if (old && fresh && fresh.outerHTML !== old.outerHTML) replaceKeeping(old, document.importNode(fresh, true));
  }
}

function takePart(part) {
  const old = document.getElementById(part.id);
  if (!old || old.outerHTML === part.outerHTML) return;
  const state = part.id === "part-state";
  replaceKeeping(old, part);
  if (state) refreshAsks();
}

function takeCounts(counts) {
  for (const [key, number] of Object.entries(counts)) {
    const place = root.querySelector(`[data-count="${CSS.escape(key)}"]`);
    if (!place) continue;
    place.textContent = number.toLocaleString("en");
    const link = place.closest("a");
    if (number > 0) link.hidden = false;
  }
  // A grid keeps the rows and columns it was made with: nothing moves that the reader did not move.
  const more = (counts.all ?? 0) - Number(root.dataset.total);
  const added = document.getElementById("part-added");
  added.hidden = more <= 0;
  added.querySelector("[data-added]").textContent = more === 1 ? "1 run was added." : `${more} runs were added.`;
}

startClocks();
new LiveSocket({
  url: () => `${root.dataset.socket}?mark=${mark}`,
  take: (message) => {
    for (const cell of elementsOf(message.cells ?? "")) takeCell(cell);
    for (const part of elementsOf(message.parts ?? "")) takePart(part);
    if (message.counts) takeCounts(message.counts);
    if (message.mark) mark = message.mark;
  },
  say: (state, since) => showState(state, state === "away" ? awaySince(since) : ""),
});
