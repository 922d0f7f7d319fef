// The harness editor: what is typed is checked by the server as one types, kept by the browser until it is
// saved, and saved without leaving the page, so that an answer that does not come loses nothing.
//
// Everything works without this: the form is sent by its buttons and comes back with what was typed in it.

import "./harness_keys.js";
import { elementsOf, whyNot } from "./live.js";

const form = document.querySelector("[data-editor]");
const word = document.getElementById("bar-word");
const notice = document.getElementById("editor-notice");
const offer = document.getElementById("editor-offer");
const room = document.getElementById("editor-room");
const save = form.querySelector("[data-save]");
const CHECK_MS = 400;
const KEEP_MS = 500;
const KEPT = `lab-harness-draft:${location.pathname}`;
const LARGEST = 8_000_000;
document.documentElement.classList.add("script");

const LOST = {
  0: "The server does not answer. What you typed stays here; save again when it is back.",
  401: "You are signed out. Sign in in another tab, then save again here: what you typed stays.",
  403: "Your sign-in has changed since this page was opened. Load the page anew: what you typed is kept and can be restored.",
  413: "This is more than the 8 MB that the lab takes at once. Shorten it; what you typed stays.",
};
LOST[400] = LOST[413];

// ---- talking to the server -----------------------------------------------------------------------------------

function data(action) {
  const fields = new FormData(form);
  fields.set("do", action);
  return fields;
}

function size(fields) {
  let characters = 0;
  for (const value of fields.values()) if (typeof value === "string") characters += value.length;
  return characters;
}

async function send(fields, options = {}) {
  if (size(fields) > LARGEST) return { status: 413, text: "", location: "" };
  try {
    const headers = { "X-Requested-With": "fetch", "X-CSRFToken": document.body.dataset.token };
    const answer = await fetch(form.action, { method: "POST", body: fields, headers, ...options });
    return { status: answer.status, text: await answer.text(), location: answer.headers.get("Location") ?? "" };
  } catch (error) {
    return { status: error.name === "AbortError" ? -1 : 0, text: "", location: "" };
  }
}

function tell(words, place = notice) {
  place.querySelector("[data-words]").textContent = words;
  place.hidden = !words;
}

// ---- what is wrong, beside its field ---------------------------------------------------------------------------

function icon(name) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  element.setAttribute("class", "icon");
  element.setAttribute("aria-hidden", "true");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  const sprite = notice.querySelector("use").getAttribute("href").split("#")[0];
  use.setAttribute("href", `${sprite}#${name}`);
  element.append(use);
  return element;
}

function placeProblems() {
  for (const slot of form.querySelectorAll(".field-problems")) slot.replaceChildren();
  for (const field of form.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  for (const field of form.querySelectorAll(".field[data-invalid]")) field.removeAttribute("data-invalid");
  for (const link of form.querySelectorAll("#checked-problems [data-problem]")) {
    const message = link.parentElement.querySelector("[data-message]");
    const words = message.dataset.inside ? `${message.dataset.inside}: ${message.textContent}` : message.textContent;
    for (const id of link.dataset.problem.split(" ").filter(Boolean)) placeProblem(id, words, link.dataset.severity === "error");
  }
}

function placeProblem(id, words, isError) {
  const field = document.getElementById(id);
  if (!field) return;
  const line = document.createElement("span");
  line.className = isError ? "error" : "caution";
  const text = document.createElement("span");
  text.textContent = words;
  line.append(icon(isError ? "cross" : "warning"), text);
  document.getElementById(`${id}-problem`)?.append(line);
  if (!isError) return;
  field.setAttribute("aria-invalid", "true");
  field.closest(".field").setAttribute("data-invalid", "");
}

function showChecked(html) {
  const open = [...form.querySelectorAll("#checked details.part")].map((part) => part.open);
  const [fresh] = elementsOf(html);
  if (fresh?.id !== "checked") return;
  document.getElementById("checked").replaceWith(fresh);
  const folds = [...fresh.querySelectorAll("details.part")];
  if (folds.length === open.length) folds.forEach((part, index) => { part.open = open[index]; });
  showWord();
  placeProblems();
}

// The bar says in a line what the side says in full.
function showWord() {
  const line = document.getElementById("checked-word");
  word.replaceChildren(...[...line.cloneNode(true).childNodes]);
  word.className = line.className;
  const name = line.querySelector("[data-save-as]").textContent.trim();
  save.querySelector("[data-label]").textContent = name ? `Save as ${name}` : "Save";
}

let waiting = null;
let asking = null;
async function check() {
  waiting = null;
  asking?.abort();
  const mine = asking = new AbortController();
  form.setAttribute("aria-busy", "true");
  const answer = await send(data("check"), { signal: mine.signal });
  if (asking !== mine) return;
  asking = null;
  form.removeAttribute("aria-busy");
  if (answer.status === 200) { tell(""); showChecked(answer.text); } else if (answer.status !== -1) lost(answer.status);
}

function lost(status) {
  tell(LOST[status] ?? whyNot(status));
}

function checkSoon() {
  clearTimeout(waiting);
  waiting = setTimeout(check, CHECK_MS);
}

// ---- saving ----------------------------------------------------------------------------------------------------

async function saveNow() {
  if (save.disabled) return;
  clearTimeout(waiting);
  asking?.abort();
  asking = null;
  save.disabled = true;
  const answer = await send(data("save"));
  save.disabled = false;
  if (answer.status === 201 && answer.location) {
    forget(own);
    location.assign(answer.location);
  } else if (answer.status === 422) {
    showChecked(answer.text);
    goTo(form.querySelector('#checked-problems [data-severity="error"]'));
  } else {
    lost(answer.status);
  }
}

function goTo(link) {
  const field = link && document.getElementById(link.dataset.problem.split(" ")[0] || "checked-problems");
  if (!field) return;
  for (let fold = field.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  field.focus();
  field.scrollIntoView({ block: "center" });
}

// ---- what was typed is kept -------------------------------------------------------------------------------------
//
// Each page that is open writes a slot of its own, so that neither an older draft that nobody has restored yet
// nor that of another tab is overwritten.

// What a draft does not hold: the form's key, and which newest version somebody was told of when it was typed.
const NOT_KEPT = new Set(["csrfmiddlewaretoken", "seen_newest"]);

let own = newSlot();
let offered = null;
let keeping = null;

function newSlot() {
  const bytes = [...crypto.getRandomValues(new Uint8Array(8))];
  return `${KEPT}:${bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

function keep() {
  clearTimeout(keeping);
  keeping = setTimeout(keepNow, KEEP_MS);
}

function keepNow() {
  clearTimeout(keeping);
  keeping = null;
  const fields = [...new FormData(form)].filter(([name, value]) => !NOT_KEPT.has(name) && typeof value === "string");
  try {
    localStorage.setItem(own, JSON.stringify({ at: Date.now(), fields }));
    tell("", room);
  } catch (error) {
    sayNoRoom(error);
  }
}

// What this page kept before stays: it is older than what stands here, and better than nothing.
function sayNoRoom(error) {
  const why = error.name === "QuotaExceededError" ? "This draft is larger than the room that the browser has left for it" : "The browser keeps no drafts of this page";
  const older = kept(own);
  const what = older ? `what you typed since ${shownTime(older.at)}` : "what you typed";
  tell(`${why}: ${what} stands on this page alone until you save it.`, room);
}

function keepWhatWaits() {
  if (keeping !== null) keepNow();
}

function forget(slot) {
  if (slot === own) { clearTimeout(keeping); keeping = null; }
  try { localStorage.removeItem(slot); } catch { /* nothing was kept */ }
}

function kept(slot) {
  try { return JSON.parse(localStorage.getItem(slot)); } catch { return null; }
}

function shownTime(at) {
  return new Date(at).toLocaleString();
}

// The newest draft of this page that is not this page's own, and how many there are.
function offerOlder() {
  let slots = [];
  try { slots = Object.keys(localStorage); } catch { /* nothing was kept */ }
  const others = slots.filter((slot) => slot !== own && (slot === KEPT || slot.startsWith(`${KEPT}:`)))
    .map((slot) => ({ slot, ...kept(slot) })).filter((draft) => draft.fields).sort((one, other) => other.at - one.at);
  offered = others[0]?.slot ?? null;
  const more = others.length > 1 ? ` Of ${others.length} drafts it is the newest.` : "";
  tell(offered ? `Something typed here on ${shownTime(others[0].at)} was not saved.${more}` : "", offer);
}

// What stood here until then stays kept, and is offered in turn.
async function restore() {
  const slot = offered;
  const draft = kept(slot);
  // Another tab may have saved or discarded it.
  if (!draft) { offerOlder(); return; }
  const fields = new FormData();
  for (const [name, value] of draft.fields) fields.append(name, value);
  fields.set("do", "render");
  const answer = await send(fields);
  if (answer.status !== 200) { lost(answer.status); return; }
  clearTimeout(waiting);
  asking?.abort();
  asking = null;
  keepWhatWaits();
  const fresh = new DOMParser().parseFromString(answer.text, "text/html").querySelector(".editor-columns");
  form.querySelector(".editor-columns").replaceWith(document.adoptNode(fresh));
  tell("");
  begin();
  own = newSlot();
  forget(slot);
  try { localStorage.setItem(own, JSON.stringify(draft)); } catch (error) { sayNoRoom(error); }
  offerOlder();
}

function discard() {
  forget(offered);
  offerOlder();
}

// ---- tools ------------------------------------------------------------------------------------------------------

async function addTool() {
  const answer = await send(data("add"));
  const [tool] = answer.status === 200 ? elementsOf(answer.text) : [];
  if (!tool) { lost(answer.status); return; }
  document.getElementById("tools").append(tool);
  begin();
  tool.querySelector("input[type=text]").focus();
  keep();
  checkSoon();
}

function moveUp(tool) {
  const before = tool.previousElementSibling;
  if (!before) return;
  before.before(tool);
  tool.querySelector("[data-up]").focus();
  keep();
  checkSoon();
}

// ---- beginning, and what people do --------------------------------------------------------------------------------

function begin() {
  for (const button of form.querySelectorAll("[data-up]")) button.hidden = false;
  showWord();
}

form.addEventListener("input", (event) => {
  const field = event.target;
  if (field.id === "add") return;
  const name = form.querySelector(`[data-name-of="${CSS.escape(field.name)}"]`);
  if (name) name.textContent = field.value;
  if (field.name.endsWith(".on")) field.closest("[data-tool]").toggleAttribute("data-off", !field.checked);
  keep();
  checkSoon();
});

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.submitter?.hasAttribute("data-add")) addTool(); else saveNow();
});

form.addEventListener("click", (event) => {
  const link = event.target.closest("[data-problem]");
  if (link) { event.preventDefault(); goTo(link); return; }
  if (event.target.closest("[data-first-problem]")) {
    event.preventDefault();
    goTo(form.querySelector('#checked-problems [data-severity="error"]'));
  }
  const up = event.target.closest("[data-up]");
  if (up) { event.preventDefault(); moveUp(up.closest("[data-tool]")); }
  if (event.target.closest("[data-restore]")) restore();
  if (event.target.closest("[data-discard]")) discard();
});

// Enter in a field of one line would press the first button.
form.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches("input[type=text]")) event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "s" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
  event.preventDefault();
  saveNow();
});

window.addEventListener("pagehide", keepWhatWaits);

begin();
offerOlder();
