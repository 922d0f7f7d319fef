// The labelling page: digits answer the field one is in, letters act, every change is stored at once.

import { moveRow, onKey } from "./keys.js";
import { ask, elementsOf, whyNot } from "./live.js";
import { firstSeqOf, fold, foldAll, keepHeights, loadNearEdges, loadOpen, openSection, shrinkHead, standOn, watchView } from "./step_list.js";
import { chooseCode, filterCodes, moveCode, showCodes } from "./label_codes.js";
import { markLabel, wordsAround } from "./label_marks.js";

const run = document.getElementById("run");
const steps = document.getElementById("steps");
const map = document.getElementById("minimap");
const side = document.getElementById("side");
const said = document.getElementById("said");
const base = `/annotate/labels/${run.dataset.label}`;
const token = document.body.dataset.token;
const ALIVE_MS = 20000;

const panel = () => document.getElementById("label-panel");
const items = () => [...steps.querySelectorAll(":scope > li.step")];
const openKey = () => Number(panel().dataset.open) || null;
let activeField = "owner";
let lastStep = items()[0] ?? null; // where one was in the steps before going into the panel

// ---- talking to the server: one change after another ---------------------------------------------------------

let queue = Promise.resolve();
function later(work) {
  queue = queue.then(work, work);
  return queue;
}

async function post(path, fields) {
  const body = new URLSearchParams(fields);
  try {
    const response = await fetch(`${base}/${path}`, {
      method: "POST", body, headers: { "X-CSRFToken": token, "X-Requested-With": "fetch" }, credentials: "same-origin",
    });
    const text = await response.text();
    const isJson = response.headers.get("Content-Type")?.includes("json");
    return { status: response.status, html: isJson ? "" : text, data: isJson ? JSON.parse(text) : {} };
  } catch {
    return { status: 0, html: "", data: {} };
  }
}

// A change: the panel as it is afterwards. `then` stands somewhere in it.
function change(path, fields, then, input = null) {
  return later(async () => {
    sending = input;
    const answer = await post(path, { revision: panel().dataset.revision, open: panel().dataset.open, ...fields });
    if (answer.data.go) { location.assign(answer.data.go); return false; }
    if (answer.status !== 200) sending = null; // what was typed is refused, and stays
    if (answer.status === 200 || answer.status === 409 || answer.status === 422) takePanel(answer.html);
    else { sayProblem(answer.status); return false; }
    if (answer.status === 200) then?.();
    else { said.textContent = panel().querySelector(".error")?.textContent ?? ""; panel().querySelector(".error")?.scrollIntoView({ block: "nearest" }); }
    return answer.status === 200;
  });
}

const edit = (operation, then, more = {}) => change("edit", { operation: JSON.stringify(operation), ...more }, then);

function sayProblem(status) {
  const words = status ? whyNot(status) : "The server does not answer. What you typed stays here; try again.";
  let place = document.getElementById("panel-problem");
  if (!place) {
    [place] = elementsOf('<p class="error" id="panel-problem" role="alert"><span></span></p>');
    side.prepend(place);
  }
  place.firstElementChild.textContent = words;
}

// The panel is swapped whole: focus, what was being typed elsewhere, and how far it is scrolled stay.
function takePanel(html) {
  const focused = side.contains(document.activeElement) ? document.activeElement : null;
  const place = focused && addressOf(focused);
  const typed = new Map([...side.querySelectorAll("[data-text]")].filter((field) => field.value !== field.dataset.stored && field !== sending).map((field) => [field.id, field.value]));
  const top = side.scrollTop;
  document.getElementById("panel-problem")?.remove();
  panel().replaceWith(elementsOf(html).find((one) => one.id === "label-panel"));
  for (const [id, value] of typed) { const field = document.getElementById(id); if (field) field.value = value; }
  side.scrollTop = top;
  sending = null;
  ready();
  const next = place && findBy(place);
  if (next) next.focus({ preventScroll: true });
}

function addressOf(element) {
  const field = element.closest("[data-field]")?.dataset.field ?? "";
  const picks = [...(element.closest("[data-field]")?.querySelectorAll("button, input, textarea") ?? [])];
  return { id: element.id, field, at: picks.indexOf(element), filter: element.matches("[data-filter]") };
}
function findBy({ id, field, at, filter }) {
  if (id) return document.getElementById(id);
  const place = panel().querySelector(`[data-field="${field}"]`);
  if (filter) return place?.querySelector("[data-filter]");
  return place?.querySelectorAll("button, input, textarea")[at] ?? null;
}

// ---- fields -------------------------------------------------------------------------------------------------

const fields = () => [...panel().querySelectorAll("[data-field]")];
const field = (name) => panel().querySelector(`[data-field="${name}"]`);

function activate(name) {
  if (field(name)) activeField = name;
  showActive(side.contains(document.activeElement));
}

// The active field shows its digits while one is in the panel.
function showActive(shown) {
  for (const one of fields()) {
    const on = shown && one.dataset.field === activeField;
    one.classList.toggle("active", on);
    if (one.querySelector(".codes")) showCodes(one, on);
  }
}

// Into a field: its text, or the choice that is made, else the first one.
function enter(name) {
  activate(name);
  const place = field(name);
  if (!place) return;
  const target = place.querySelector("[data-filter], [data-text]") ?? place.querySelector('[aria-pressed="true"]') ?? place.querySelector("button");
  target?.focus({ preventScroll: true });
  place.scrollIntoView({ block: "nearest" });
}

function step(by) {
  const names = fields().map((one) => one.dataset.field);
  // From the steps one comes back to the field one left.
  const at = names.indexOf(activeField);
  const next = side.contains(document.activeElement) ? at + by : at;
  if (next < 0) { toSteps(); return; }
  if (next >= names.length) { panel().querySelector("[data-submit] button").focus(); return; }
  enter(names[next]);
}

function toSteps() {
  const item = lastStep?.isConnected ? lastStep : items()[0];
  if (item) standOn(item);
}

function pick(number) {
  // While one reads the steps a digit answers nothing.
  if (!side.contains(document.activeElement)) return false;
  const place = field(activeField);
  const choices = [...(place?.querySelectorAll("[data-pick]") ?? [])].filter((one) => !one.hidden);
  const choice = choices[number - 1];
  if (!choice) return false;
  if (choice.matches(".code")) chooseCode(choice);
  else choice.form.requestSubmit(choice);
  return true;
}

let sending = null;
function storeText(input) {
  if (!input?.matches?.("[data-text]") || input.value === input.dataset.stored || input.value === input.dataset.sent) return null;
  const operation = input.form.elements.operation.value;
  const value = input.value;
  input.dataset.sent = value;
  return change("edit", { operation, value }, null, input).then((stored) => { if (!stored) delete input.dataset.sent; return stored; });
}

side.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.matches("[data-edit]")) {
    event.preventDefault();
    const button = event.submitter;
    if (button?.name === "operation") {
      const name = form.contains(button) ? button.closest("[data-field]")?.dataset.field : null;
      if (name) activate(name);
      edit(JSON.parse(button.value), () => { if (name === "category") enter("severity"); });
    } else if (button?.matches("[data-undo]")) change("undo", {});
    else { const input = form.querySelector("[data-text]"); if (input) storeText(input); }
  } else if (form.matches("[data-submit]")) {
    event.preventDefault();
    submit();
  }
});
side.addEventListener("focusin", (event) => {
  const name = event.target.closest?.("[data-field]")?.dataset.field;
  if (name) activate(name);
});
side.addEventListener("focusout", (event) => { storeText(event.target); });
side.addEventListener("input", (event) => {
  if (event.target.matches("[data-filter]")) filterCodes(event.target);
  if (event.target.matches("textarea")) grow(event.target);
});
side.addEventListener("click", (event) => {
  const row = event.target.closest("[data-open-event]");
  if (row) { event.preventDefault(); show(Number(row.dataset.openEvent)); return; }
  const act = event.target.closest("[data-act]");
  if (act) { acts[act.dataset.act](); return; }
  const to = event.target.closest("[data-to-step]");
  if (to && goTo(Number(to.dataset.toAttempt), Number(to.dataset.toStep))) event.preventDefault();
  if (event.target.closest("[data-skip-open]")) openSkip();
});
// Settling labels that differ: part of one goes into the record.
document.querySelector(".adjudicated")?.addEventListener("submit", (event) => {
  event.preventDefault();
  change("take", { parent: event.target.elements.parent.value, part: event.submitter.value });
});
document.querySelector(".steps-head").addEventListener("click", (event) => {
  const act = event.target.closest("[data-act]");
  if (act) acts[act.dataset.act]();
});

function grow(area) {
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight + 2}px`;
}

// Another event is opened for editing, and its step shown.
async function show(key) {
  await later(async () => {
    const { html } = await ask(`${location.pathname}?open=${key}`);
    if (html === undefined) return;
    const fresh = new DOMParser().parseFromString(html, "text/html").getElementById("label-panel");
    if (fresh) takePanel(fresh.outerHTML);
  });
  const mark = marks().find((one) => one.key === key);
  if (mark) goTo(mark.attempt, mark.step);
}

// ---- steps --------------------------------------------------------------------------------------------------

const marks = () => JSON.parse(panel().dataset.marks);
const stepOf = (item) => ({ step: Number(item.dataset.step), attempt: Number(item.dataset.attempt) });

function here() {
  const focused = document.activeElement?.closest?.("#steps > li.step");
  if (focused) return focused;
  return lastStep?.isConnected ? lastStep : items()[0] ?? null;
}

function goTo(attempt, number) {
  const item = items().find((one) => Number(one.dataset.step) === number && Number(one.dataset.attempt) === attempt);
  if (!item) return false;
  fold(item, true);
  standOn(item, "center");
  return true;
}

steps.addEventListener("focusin", (event) => {
  lastStep = event.target.closest("li.step") ?? lastStep;
  showActive(false);
});

const watchEdges = loadNearEdges(steps, () => markLabel(marks(), steps, map));

function toEvent(direction) {
  const all = marks().map((mark) => ({ ...mark, place: mark.attempt * 1e6 + mark.step })).sort((one, other) => one.place - other.place);
  const item = here();
  const at = item ? Number(item.dataset.attempt) * 1e6 + Number(item.dataset.step) : 0;
  const next = direction > 0 ? all.find((mark) => mark.place > at) : all.reverse().find((mark) => mark.place < at);
  if (next) show(next.key);
}

// ---- what letters do ------------------------------------------------------------------------------------------

function newEvent() {
  const item = here();
  if (!item) return;
  edit({ do: "add_event", step: stepOf(item) }, () => enter("category"), { open: "" });
}

function evidence() {
  const words = wordsAround(steps);
  if (words) {
    const { item, ...quote } = words;
    edit({ do: "mark", step: stepOf(item), key: openKey(), ...quote }, () => { getSelection().removeAllRanges(); standOn(item); });
  } else if (field("evidence")) enter("evidence");
  else said.textContent = "Add an error event first, or select words of a step";
}

function rootHere() {
  const item = here();
  if (!item) return;
  const known = marks().filter((mark) => mark.step === Number(item.dataset.step) && mark.attempt === Number(item.dataset.attempt)).pop();
  const then = () => { if (field("category") && !field("category").querySelector('[aria-selected="true"]')) enter("category"); };
  edit({ do: "point_root", step: stepOf(item) }, then, { open: known ? String(known.key) : "" });
}

function toRoot() {
  const root = marks().find((mark) => mark.root);
  if (root) show(root.key);
}

const acts = {
  event: newEvent,
  evidence,
  root: rootHere,
  to_root: toRoot,
  sure: () => {
    const pressed = field("sure").querySelector('[aria-pressed="true"]');
    const sure = pressed ? !JSON.parse(pressed.value).value : true;
    edit({ do: "set_sure", value: sure }, () => enter("sure"));
  },
  undo: () => change("undo", {}),
  redo: () => change("redo", {}),
  remove: () => panel().querySelector("[data-remove]")?.click(),
  owner: () => enter("owner"),
  note: () => enter("note"),
};

const keyNames = JSON.parse(run.dataset.keys);
for (const [action, key] of Object.entries(keyNames)) onKey(key, () => acts[action]());
for (let number = 1; number <= 9; number += 1) onKey(String(number), () => pick(number));
onKey("o", () => fold(here()));
onKey("O", () => foldAll(items()));
onKey("b", () => items()[0] && standOn(items()[0]));
onKey("e", () => { const all = items(); if (all.length) standOn(all[all.length - 1]); });
onKey("d", () => openSection("patch"));
onKey("t", () => openSection("tests"));
onKey("v", () => openSection("gold"));
onKey("]", () => toEvent(1));
onKey("[", () => toEvent(-1));
onKey("w", () => { document.body.classList.toggle("wrap"); });

// Keys that also hold inside of fields.
document.addEventListener("keydown", (event) => {
  if (event.isComposing || document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    if (event.shiftKey) openSkip(); else submit();
    return;
  }
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const inFilter = event.target.matches?.("[data-filter]");
  if (event.key === "Tab" && (side.contains(event.target) || steps.contains(event.target) || event.target === document.body)) {
    event.preventDefault();
    step(event.shiftKey ? -1 : 1);
  } else if (event.key === "Escape" && side.contains(event.target)) {
    event.preventDefault();
    storeText(event.target);
    toSteps();
  } else if (inFilter && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
    event.preventDefault();
    moveCode(event.target, event.key === "ArrowDown" ? 1 : -1);
  } else if (inFilter && event.key === "Enter") {
    event.preventDefault();
    chooseCode(event.target.closest("[data-field]").querySelector(".code.lit"));
  } else if (event.key === "Enter" && event.target.matches?.("textarea[data-text], input[data-text]") && !event.shiftKey) {
    event.preventDefault();
    const mark = event.target.form.matches("[data-mark]");
    storeText(event.target);
    if (!mark) step(1);
  } else if (!event.target.matches?.("input, textarea") && (event.key === "ArrowDown" || event.key === "ArrowUp") && steps.contains(event.target)) {
    event.preventDefault();
    moveRow(event.key === "ArrowDown" ? 1 : -1);
  }
});

// ---- submit and skip ------------------------------------------------------------------------------------------

async function submit() {
  for (const input of side.querySelectorAll("[data-text]")) storeText(input);
  await queue;
  // What could not be stored is said, and not left behind.
  if ([...side.querySelectorAll("[data-text]")].some((input) => input.value !== input.dataset.stored)) return;
  change("submit", {});
}

const skipDialog = document.getElementById("skip-dialog");
function openSkip() {
  if (!panel().querySelector("[data-skip-open]")) return;
  skipDialog.showModal();
  skipDialog.querySelector("#skip-reason").focus();
}
skipDialog.addEventListener("click", (event) => { if (event.target.closest("[data-close]")) skipDialog.close(); });
skipDialog.querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const answer = await post("skip", Object.fromEntries(new FormData(event.target)));
  if (answer.data.go) { location.assign(answer.data.go); return; }
  const place = skipDialog.querySelector("[data-error]");
  const wrong = elementsOf(answer.html || "<p></p>")[0].querySelector?.('[data-error-of="skip"]');
  place.textContent = wrong?.textContent ?? answer.data.why ?? whyNot(answer.status);
  place.hidden = false;
});

// ---- signs of life: only while somebody is at it ---------------------------------------------------------------

let active = Date.now();
for (const name of ["keydown", "pointerdown", "wheel", "scroll"]) document.addEventListener(name, () => { active = Date.now(); }, { passive: true });
setInterval(async () => {
  if (document.hidden || Date.now() - active > 3 * ALIVE_MS) return;
  const answer = await post("alive", {});
  const foot = answer.status === 200 && elementsOf(answer.html).find((one) => one.id === "label-foot");
  if (foot) document.getElementById("label-foot")?.replaceWith(foot);
}, ALIVE_MS);
// What is being typed is stored before the page goes away.
window.addEventListener("pagehide", () => {
  const input = document.activeElement;
  if (!input?.matches?.("[data-text]") || input.value === input.dataset.stored) return;
  const body = new URLSearchParams({ csrfmiddlewaretoken: token, revision: panel().dataset.revision, operation: input.form.elements.operation.value, value: input.value });
  navigator.sendBeacon(`${base}/edit`, body);
});

// ---- start ------------------------------------------------------------------------------------------------------

function ready() {
  activate(field(activeField) ? activeField : "owner");
  for (const input of panel().querySelectorAll("[data-text]")) input.dataset.stored ??= input.defaultValue;
  for (const area of panel().querySelectorAll("textarea")) grow(area);
  markLabel(marks(), steps, map);
}

keepHeights();
window.addEventListener("scroll", shrinkHead, { passive: true });
watchView(steps, items);
watchEdges();
loadOpen(document);
map.parentElement.classList.toggle("dense", map.children.length > 60);
map.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  const target = link && document.getElementById(link.dataset.target);
  if (!target) return; // the link loads the window around it
  event.preventDefault();
  fold(target, true);
  standOn(target, "start");
});
document.querySelector("[data-open-all]").addEventListener("click", () => foldAll(items()));
steps.addEventListener("toggle", () => markLabel(marks(), steps, map), true);
document.addEventListener("htmx:after:swap", () => markLabel(marks(), steps, map));
ready();
const asked = new URLSearchParams(location.search).get("at");
const first = asked ? items().find((item) => firstSeqOf(item) === Number(asked)) : null;
if (first) { fold(first, true); standOn(first, "start"); } else enter("owner");
