// Keys of the pages that show harnesses: buttons of the page, folds, and the stops of a comparison.

import { onKey } from "./keys.js";

for (const [key, selector] of [["n", "[data-new]"], ["i", "[data-import]"], ["d", "[data-diff]"], ["c", "[data-clone]"], ["e", "[data-edit]"]]) {
  onKey(key, () => {
    const target = document.querySelector(selector);
    if (!target) return false;
    target.click();
    return true;
  });
}

onKey("q", () => {
  const request = document.getElementById("request");
  if (!request) return false;
  request.scrollIntoView({ block: "start" });
  request.querySelector("select")?.focus({ preventScroll: true });
  return true;
});

onKey("o", () => {
  const parts = [...document.querySelectorAll("details.part")];
  if (parts.length === 0) return false;
  const open = parts.some((part) => !part.open);
  for (const part of parts) part.open = open;
  return true;
});

function moveStop(by) {
  const stops = [...document.querySelectorAll("[data-stop]")];
  if (stops.length === 0) return false;
  const at = stops.indexOf(document.activeElement);
  const next = at === -1 ? (by > 0 ? 0 : stops.length - 1) : Math.min(Math.max(at + by, 0), stops.length - 1);
  stops[next].focus();
  return true;
}
onKey("]", () => moveStop(1));
onKey("[", () => moveStop(-1));
