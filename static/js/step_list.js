// What pages with a list of steps share: folding, parts fetched when they are opened, where one stands in the map.

import { ask, elementsOf, whyNot } from "./live.js";

export const firstSeqOf = (item) => Number(item.id.slice("event-".length));

export function fold(item, open) {
  const details = item?.querySelector(":scope > article > details, :scope > details");
  if (!details) return;
  details.open = open ?? !details.open;
  details.dataset.touched = "yes";
}

export function foldAll(items) {
  const all = items.map((item) => item.querySelector(":scope > article > details")).filter(Boolean);
  const open = !all.every((details) => details.open);
  for (const details of all) { details.open = open; details.dataset.touched = "yes"; }
}

export function openSection(id) {
  const section = document.getElementById(id);
  if (!section) return false;
  section.open = true;
  section.dataset.touched = "yes";
  section.querySelector("summary").focus();
  section.scrollIntoView({ block: "start" });
  return true;
}

// Puts the cursor on a step.
export function standOn(item, block = "nearest") {
  (item.querySelector("[data-row]") ?? item.querySelector("summary") ?? item).focus({ preventScroll: true });
  item.scrollIntoView({ block });
}

// ---- what is fetched when it is opened ---------------------------------------------------------------------

async function load(place) {
  const url = place.dataset.lazy;
  if (!url || place.dataset.loaded) return;
  place.dataset.loaded = url;
  const { html, why } = await ask(url);
  if (html !== undefined) place.innerHTML = html;
  else { delete place.dataset.loaded; place.textContent = why; }
}

const loadIn = (details) => { for (const place of details.querySelectorAll(":scope > [data-lazy]")) load(place); };
export function loadOpen(root) {
  for (const details of root.querySelectorAll("details.lazy[open]")) loadIn(details);
}
document.addEventListener("toggle", (event) => {
  if (event.target.matches?.("details.lazy[open]")) loadIn(event.target);
}, true);

// What is fetched on a click stays as it was when the server refuses; the link says why.
document.addEventListener("htmx:response:error", (event) => {
  const link = event.target.closest?.("a.more");
  if (link) link.textContent = whyNot(event.detail.ctx?.response?.status);
});

// ---- more as one scrolls -----------------------------------------------------------------------------------

// Loads what lies beyond the links at both ends of the list when they come near. `loaded` is told on which side
// of the new steps the list has grown long: "before" or "after". Gives what watches the links anew.
export function loadNearEdges(steps, loaded) {
  const edges = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) loadMore(entry.target);
  }, { rootMargin: "600px 0px" });
  const watchEdges = () => {
    edges.disconnect();
    for (const edge of steps.querySelectorAll("[data-more]")) edges.observe(edge);
  };
  async function loadMore(edge) {
    if (edge.dataset.loading) return;
    edge.dataset.loading = "yes";
    edges.unobserve(edge);
    const { html } = await ask(edge.querySelector("a").dataset.url);
    delete edge.dataset.loading;
    if (html === undefined || !edge.isConnected) return; // the link is still there
    const fresh = elementsOf(html).filter((item) => !item.id || !document.getElementById(item.id) || item.dataset.more);
    const above = edge.dataset.more === "before";
    const height = document.documentElement.scrollHeight;
    const top = window.scrollY;
    edge.replaceWith(...fresh);
    for (const item of fresh) window.htmx?.process?.(item);
    // What is put in above must not move what is being read.
    if (above) window.scrollTo({ top: top + document.documentElement.scrollHeight - height, behavior: "instant" });
    loaded(above ? "after" : "before");
    watchEdges();
  }
  return watchEdges;
}

// ---- where one stands --------------------------------------------------------------------------------------

// What sticks below bar and head sticks below all of them: both wrap in a narrow window.
export function keepHeights() {
  const above = [["--under-bar", document.querySelector(".app-bar")], ["--head-height", document.getElementById("run-head")]];
  const measure = () => { for (const [name, one] of above) document.documentElement.style.setProperty(name, `${one.getBoundingClientRect().height}px`); };
  measure();
  const resized = new ResizeObserver(measure);
  for (const [, one] of above) resized.observe(one);
}

// Two thresholds: the head that shrinks makes the page shorter and must not flicker between the two.
export function shrinkHead() {
  const root = document.documentElement;
  if (window.scrollY > 80) root.classList.add("scrolled");
  else if (window.scrollY < 10) root.classList.remove("scrolled");
}

// Marks in the minimap which steps are in view. `changed` is called when steps come or go.
export function watchView(steps, itemsOf, changed = () => {}) {
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) document.getElementById(`map-${entry.target.id}`)?.classList.toggle("in-view", entry.isIntersecting);
  });
  const observe = () => {
    for (const item of itemsOf()) if (!item.dataset.observed) { item.dataset.observed = "yes"; seen.observe(item); }
  };
  new MutationObserver(() => { changed(); observe(); }).observe(steps, { childList: true });
  observe();
}
