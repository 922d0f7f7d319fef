// Keys that work on every page. A page adds its own through `onKey(key, action)`.
//
// Keys are matched by what they produce (event.key), are dead in fields, with Ctrl, Alt or Meta, and while an
// input method composes, and single ones can be switched off in the settings.

const actions = new Map();
let waitingForPlace = false;

export function onKey(key, action) {
  actions.set(key, action);
}

const FIELDS = "input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]";

function singleKeysAreOn() {
  return document.body.dataset.singleKeys !== "off";
}

// A field in a dialog that has just closed keeps the focus until the next frame: its keys are the page's already.
function inField(target) {
  return target.closest?.(FIELDS)?.checkVisibility() ?? false;
}

function rows() {
  return [...document.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
}

// The cursor is the focused row: screen readers and scrolling follow it.
export function moveRow(by) {
  const all = rows();
  if (all.length === 0) return;
  const at = all.findIndex((row) => row === document.activeElement || row.contains(document.activeElement));
  const next = at === -1 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1);
  all[next].focus();
}

function goTo(letter) {
  document.querySelector(`[data-go="${CSS.escape(letter)}"]`)?.click();
}

function showKeySheet() {
  document.getElementById("key-sheet")?.showModal();
}

document.addEventListener("keydown", (event) => {
  if (event.isComposing || event.ctrlKey || event.altKey || event.metaKey) return;
  if (inField(event.target) || document.querySelector("dialog[open]")) return;
  if (!singleKeysAreOn()) return;
  if (waitingForPlace) {
    waitingForPlace = false;
    goTo(event.key);
    event.preventDefault();
    return;
  }
  // Brackets need AltGr on many keyboards, so the keys beside them do the same.
  const key = { ",": "[", ".": "]" }[event.key] ?? event.key;
  const action = actions.get(key);
  if (action) {
    if (action(event) !== false) event.preventDefault();
  }
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-key-sheet]")) showKeySheet();
});

onKey("g", () => { waitingForPlace = true; });
onKey("?", showKeySheet);
onKey("j", () => moveRow(1));
onKey("k", () => moveRow(-1));
onKey("Enter", (event) => {
  const row = document.activeElement;
  if (!row?.matches?.("[data-row]") || row.matches("a, button, summary")) return false;
  const link = row.querySelector("a[href]");
  if (!link) return false;
  link.click();
  return true;
});
onKey("l", () => {
  const launch = document.querySelector("[data-launch]");
  if (!launch) return false;
  launch.focus();
  launch.scrollIntoView({ block: "nearest" });
  return true;
});

// After a mistake the reader stands in the first field that has one.
document.querySelector('[aria-invalid="true"]')?.focus();

// A form sent with Ctrl+Enter from anywhere in it, as the key cap on its button says.
document.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  const form = event.target.closest?.("form[data-ctrl-enter]") ?? document.querySelector("form[data-ctrl-enter]");
  const button = form?.querySelector("button.primary");
  if (button) form.requestSubmit(button);
});
