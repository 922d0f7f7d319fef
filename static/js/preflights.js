// Keys and the copy buttons of a model's preflight.
import { onKey } from "./keys.js";

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy-text]");
  if (button) copy(button);
});

// Without a secure context the browser offers no clipboard: then the text is selected, and Ctrl+C does it.
async function copy(button) {
  if (navigator.clipboard) {
    await navigator.clipboard.writeText(button.dataset.copyText);
    button.textContent = "Copied";
    return;
  }
  getSelection().selectAllChildren(button.previousElementSibling);
}

function finding() {
  return document.activeElement?.closest("[data-finding]") ?? document.querySelector("[data-finding]");
}

onKey("o", () => {
  const one = finding();
  if (!one) return false;
  one.open = !one.open;
  return true;
});
onKey("y", () => {
  const button = finding()?.querySelector("[data-copy-text]");
  if (!button) return false;
  copy(button);
  return true;
});
onKey("r", () => {
  const button = document.querySelector("[data-run-again]");
  if (!button) return false;
  button.click();
  return true;
});
