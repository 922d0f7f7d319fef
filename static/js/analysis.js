// Keys of the analysis: sections, switches, tables or plots, and the link to pass on.
import { onKey } from "./keys.js";

const page = document.querySelector(".analysis");
const sections = [...document.querySelectorAll("[data-section]")];
const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
const jump = document.querySelector("[data-jump]");
const said = document.getElementById("said");

page.classList.add("scripted");
jump.closest("label").hidden = false;

// The section whose beginning was passed last.
function current() {
  const edge = innerHeight * 0.3;
  return sections.findLast((section) => section.getBoundingClientRect().top <= edge) ?? sections[0];
}

function mark() {
  const at = current();
  for (const [key, link] of links) {
    if (key === at.id) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  jump.value = at.id;
}

let waiting = false;
addEventListener("scroll", () => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; mark(); });
}, { passive: true });

function go(section) {
  section.scrollIntoView({ block: "start" });
  section.focus({ preventScroll: true });
  said.textContent = links.get(section.id).textContent;
}

function move(by) {
  const focused = sections.indexOf(document.activeElement.closest?.("[data-section]"));
  const from = focused === -1 ? sections.indexOf(current()) : focused;
  go(sections[Math.min(Math.max(from + by, 0), sections.length - 1)]);
}

function press(selector) {
  const link = document.querySelector(selector);
  if (!link) return false;
  link.click();
  return true;
}

function showTables() {
  const alone = page.dataset.show !== "table";
  if (alone) page.dataset.show = "table";
  else delete page.dataset.show;
  document.querySelectorAll("[data-panel] > .numbers-below:first-of-type").forEach((part) => { part.open = alone; });
  said.textContent = alone ? "Tables alone" : "Plots with tables";
  dispatchEvent(new Event("resize"));
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    said.textContent = "Link copied";
  } catch {
    said.textContent = "The link is in the address bar";
  }
  document.querySelector("[data-copy-link]").firstChild.textContent = `${said.textContent} `;
}

onKey("]", () => move(1));
onKey("[", () => move(-1));
onKey("f", () => press("[data-selection]"));
onKey("i", () => press('[data-switch="invalid"]'));
onKey("w", () => press('[data-switch="flagged"]'));
onKey("b", showTables);
onKey("y", () => { copyLink(); });
document.querySelector("[data-copy-link]").addEventListener("click", copyLink);
jump.addEventListener("change", () => go(document.getElementById(jump.value)));
mark();
