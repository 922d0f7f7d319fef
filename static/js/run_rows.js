// Lists of runs: tick some, or stand on one, and put them side by side.
import { onKey } from "./keys.js";

const button = document.querySelector("[data-compare-runs]");
const places = [...document.querySelectorAll(".rows")];
// In the order in which they were chosen, which is that of the columns.
const chosen = new Set();
let choosing = false;
let standsOn = "";

const rowsOf = () => places.flatMap((place) => [...place.querySelectorAll(".run-row")]);
const numberOf = (row) => row.id.slice("run-".length);

function say() {
  const words = choosing ? (chosen.size ? `Compare ${chosen.size} run${chosen.size === 1 ? " with…" : "s"}` : "Tick runs to compare") : "Compare…";
  button.firstChild.textContent = `${words} `;
  button.classList.toggle("primary", chosen.size > 0);
}

function addBox(row) {
  if (row.querySelector(".tick")) return;
  const label = document.createElement("label");
  label.className = "tick";
  const box = document.createElement("input");
  box.type = "checkbox";
  box.checked = chosen.has(numberOf(row));
  box.setAttribute("aria-label", `compare run ${numberOf(row)}`);
  box.addEventListener("change", () => { tick(row, box.checked); });
  box.addEventListener("focus", () => { standsOn = numberOf(row); });
  label.append(box);
  row.firstElementChild.prepend(label);
  // A row that was swapped for its newer self while the reader stood in its box.
  if (standsOn === numberOf(row) && document.activeElement === document.body) box.focus({ preventScroll: true });
}

function choose(on) {
  choosing = on;
  standsOn = "";
  if (!on) chosen.clear();
  for (const place of places) place.classList.toggle("choosing", on);
  for (const row of rowsOf()) {
    if (on) addBox(row); else row.querySelector(".tick")?.remove();
  }
  say();
}

function tick(row, on) {
  if (on) chosen.add(numberOf(row)); else chosen.delete(numberOf(row));
  say();
}

function compare(numbers) {
  location.assign(`/compare/?runs=${numbers.join(",")}`);
}

const rowHere = () => document.activeElement?.closest?.(".run-row") ?? null;

// Rows come and are swapped while one watches.
function refresh() {
  button.hidden = rowsOf().length === 0;
  if (choosing) for (const row of rowsOf()) addBox(row);
}

if (button) {
  refresh();
  button.addEventListener("click", () => { if (chosen.size) compare([...chosen]); else choose(!choosing); });
  onKey("c", () => {
    if (button.hidden) return false;
    const row = rowHere();
    if (chosen.size) compare([...chosen]);
    else if (row) compare([numberOf(row)]);
    else choose(!choosing);
    return true;
  });
  onKey(" ", () => {
    const row = rowHere();
    if (!row || document.activeElement !== row) return false;
    if (!choosing) choose(true);
    row.querySelector(".tick input").click();
    return true;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && choosing && !document.querySelector("dialog[open]")) choose(false);
  });
  const swapped = new MutationObserver(refresh);
  for (const place of places) swapped.observe(place, { childList: true });
}
