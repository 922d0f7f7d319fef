// What a person asks of a run from its page: buttons, their keys, and forms that open as dialogs.
//
// Every button is a form or a link that works without this. What the server says is shown where it belongs: a
// mistake at its field, with what was typed still there; anything else for some seconds at the lower left.

import { onKey } from "./keys.js";
import { elementsOf, whyNot } from "./live.js";

const TOAST_MS = 6000;
const dialog = document.getElementById("ask-dialog");
const cancelDialog = document.getElementById("cancel-dialog");
const toast = document.getElementById("toast");

// The page's token: buttons that came over the socket carry none of their own.
function token() { return document.body.dataset.token; }

async function send(url, options = {}) {
  try {
    const answer = await fetch(url, { ...options, headers: { "X-Requested-With": "fetch", "X-CSRFToken": token() } });
    return { status: answer.status, ok: answer.ok, text: await answer.text() };
  } catch {
    return { status: 0, ok: false, text: "" };
  }
}

// Of an answer that is no page of the lab's making only its number can be said.
function reason(answer) {
  if (answer.status === 409) return answer.text;
  if (answer.status === 400 || answer.status === 413) return "This is more than the lab takes at once; shorten it.";
  return whyNot(answer.status);
}

// ---- what came of it -----------------------------------------------------------------------------------------

let toastTimer = null;
function tell(words) {
  toast.textContent = words;
  toast.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(function away() {
    if (toast.matches(":focus")) toastTimer = setTimeout(away, 1000); else toast.hidden = true;
  }, TOAST_MS);
}

// A button says what it is doing, and how long already, without changing its width.
function busy(button, word) {
  const label = button.querySelector("[data-label]") ?? button;
  const before = label.textContent;
  const started = Date.now();
  button.style.minWidth = `${button.offsetWidth}px`;
  button.disabled = true;
  const timer = setInterval(() => { label.textContent = `${word}, ${((Date.now() - started) / 1000).toFixed(1)} s`; }, 100);
  return () => { clearInterval(timer); label.textContent = before; button.disabled = false; };
}

// ---- one click -----------------------------------------------------------------------------------------------

async function askNow(form) {
  const button = form.querySelector("button");
  if (button.disabled) return;
  const done = busy(button, "Asking");
  const answer = await send(form.action, { method: "POST", body: new FormData(form) });
  done();
  tell(answer.ok ? answer.text : reason(answer));
}

// What leaves the page is sent once, however often the button is clicked; a page gone back to asks anew.
let pageKey = "";
const newKey = () => { pageKey = `${Date.now().toString(36)}${Math.random().toString(36).slice(2)}`; };
newKey();
window.addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  newKey();
  for (const form of document.querySelectorAll("form[data-once]")) delete form.dataset.sent;
});
function sendOnce(form, event) {
  if (form.dataset.sent) { event.preventDefault(); return; }
  form.dataset.sent = "yes";
  const key = form.querySelector("[name=key]");
  if (key) key.value = pageKey;
  // A button that came over the socket has no token of its own.
  if (!form.querySelector("[name=csrfmiddlewaretoken]")) {
    const field = document.createElement("input");
    Object.assign(field, { type: "hidden", name: "csrfmiddlewaretoken", value: token() });
    form.append(field);
  }
}

// ---- forms in a dialog ---------------------------------------------------------------------------------------

const isTouched = (form) => [...form.elements].some((field) => field.type === "checkbox" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue);

async function openForm(url) {
  const before = dialog.querySelector("form");
  // What somebody has begun to type is still there when the dialog is opened again.
  if (!before || !before.action.endsWith(url) || !isTouched(before)) {
    const answer = await send(url);
    if (!answer.ok) { tell(reason(answer)); return; }
    fill(answer.text);
  }
  if (!dialog.open) dialog.showModal();
  (dialog.querySelector("[aria-invalid=true]") ?? dialog.querySelector("[autofocus]"))?.focus();
}

function fill(html) {
  dialog.replaceChildren(...elementsOf(html));
}

async function sendForm(form) {
  const button = form.querySelector("button.primary");
  if (button.disabled) return;
  const done = busy(button, "Sending");
  const multipart = form.enctype === "multipart/form-data";
  const data = new FormData(form);
  const answer = await send(form.action, { method: "POST", body: multipart ? data : new URLSearchParams(data) });
  done();
  if (answer.ok) {
    dialog.close();
    dialog.replaceChildren();
    tell(answer.text);
  } else if (answer.status === 422) {
    fill(answer.text);
    dialog.querySelector("[aria-invalid=true]")?.focus();
  } else {
    const error = form.querySelector("[data-error]");
    error.hidden = false;
    error.querySelector("span").textContent = reason(answer);
  }
}

// ---- cancelling asks once ------------------------------------------------------------------------------------

function askToCancel() {
  const button = document.querySelector("#cancel-form button");
  if (!cancelDialog || !button || button.disabled) return false;
  cancelDialog.querySelector("[data-error]").hidden = true;
  cancelDialog.showModal();
  return true;
}

async function cancel() {
  const form = document.getElementById("cancel-form");
  // It has ended meanwhile.
  if (!form) { cancelDialog.close(); return; }
  const answer = await send(form.action, { method: "POST" });
  const error = cancelDialog.querySelector("[data-error]");
  error.hidden = answer.ok;
  error.textContent = answer.ok ? "" : reason(answer);
  if (!answer.ok) return;
  cancelDialog.close();
  const button = document.querySelector("#cancel-form button");
  if (button) busy(button, "Cancelling");
}

// ---- buttons and keys ----------------------------------------------------------------------------------------

function press(key) {
  const button = document.querySelector(`#part-actions [data-key-of="${key}"]`);
  if (!button) return false;
  button.click();
  return true;
}

if (document.getElementById("part-actions")) {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.matches("[data-once]")) { sendOnce(form, event); return; }
    const handler = form.id === "cancel-form" ? askToCancel : form.matches("[data-ask-now]") ? askNow : form.matches("#ask-dialog form") ? sendForm : null;
    if (!handler) return;
    event.preventDefault();
    handler(form);
  });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-ask]");
    if (link && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      link.closest("details")?.removeAttribute("open");
      openForm(link.getAttribute("href"));
    }
    const close = event.target.closest("dialog [data-close]");
    if (close) { event.preventDefault(); close.closest("dialog").close(); }
    if (event.target.closest("#cancel-dialog [data-confirm]")) cancel();
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });
  onKey("p", () => press("p"));
  onKey("m", () => press("m"));
  onKey("+", () => press("+"));
  onKey("x", askToCancel);
}
