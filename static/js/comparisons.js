// Keys of the pages that put runs side by side.
import { onKey } from "./keys.js";

const said = document.getElementById("said");

function toDifference(by) {
  const all = [...document.querySelectorAll("[data-difference]")];
  if (all.length === 0) return false;
  const at = document.activeElement?.closest?.("[data-difference]") ?? null;
  const from = all.indexOf(at);
  const next = from === -1 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(from + by, 0), all.length - 1);
  all[next].focus();
  all[next].scrollIntoView({ block: "nearest" });
  return true;
}

async function copyLink() {
  const button = document.querySelector("[data-copy-link]");
  if (!button) return false;
  try {
    await navigator.clipboard.writeText(location.href);
    said.textContent = "Link copied";
  } catch {
    said.textContent = "The link is in the address bar";
  }
  button.firstChild.textContent = `${said.textContent} `;
  return true;
}

function chooseRow() {
  const box = document.activeElement?.matches?.("[data-row]") && document.activeElement.querySelector("input[type=checkbox]");
  if (!box) return false;
  box.click();
  return true;
}

onKey("]", () => toDifference(1));
onKey("[", () => toDifference(-1));
onKey("y", () => { if (!document.querySelector("[data-copy-link]")) return false; copyLink(); return true; });
onKey("c", () => { const link = document.querySelector("[data-add-run]"); if (!link) return false; link.click(); return true; });
onKey(" ", chooseRow);
document.querySelector("[data-copy-link]")?.addEventListener("click", copyLink);
