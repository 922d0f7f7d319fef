// A server's list of models: searched while one types, chosen models kept above whatever is searched next.

import { onKey } from "./keys.js";

const search = document.querySelector("[data-search]");
const form = document.querySelector("[data-models]");
const kept = document.querySelector("[data-chosen]");
const WAIT = 150;
let timer = 0;
let asked = 0;

function chosenIds() {
  return new Set([...kept.querySelectorAll("input:checked")].map((input) => input.value));
}

function markFound() {
  const ids = chosenIds();
  for (const input of form.querySelectorAll("#found input")) input.checked = ids.has(input.value);
}

function keep(input) {
  const there = [...kept.querySelectorAll("input")].find((one) => one.value === input.value);
  if (!input.checked) there?.closest("li").remove();
  else if (!there) {
    const row = input.closest("li").cloneNode(true);
    row.querySelectorAll(".label").forEach((label) => label.remove());
    row.querySelector("input").checked = true;
    kept.querySelector("ul").append(row);
  }
  kept.hidden = kept.querySelector("li") === null;
}

async function show() {
  const mine = ++asked;
  const address = new URL(location.href);
  address.searchParams.delete("again");
  address.searchParams.set("q", search.value);
  const answer = await fetch(address, { headers: { "X-Requested-With": "fetch" } });
  if (!answer.ok || mine !== asked) return;
  const text = await answer.text();
  if (mine !== asked) return;
  document.getElementById("found").outerHTML = text;
  form.elements.q.value = search.value;
  history.replaceState(null, "", address);
  markFound();
}

search.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(show, WAIT);
});
search.form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(timer);
  show();
});

form.addEventListener("change", (event) => {
  const input = event.target.closest('input[name="chosen"]');
  if (!input) return;
  if (input.closest("#found")) keep(input);
  else {
    keep(input);
    markFound();
  }
});

// Arrows walk from the search through the boxes and back.
document.addEventListener("keydown", (event) => {
  if ((event.key !== "ArrowDown" && event.key !== "ArrowUp") || event.ctrlKey || event.altKey || event.metaKey) return;
  const stops = [search, ...form.querySelectorAll("#found input")];
  const at = stops.indexOf(document.activeElement);
  if (at === -1) return;
  const next = stops[at + (event.key === "ArrowDown" ? 1 : -1)];
  if (!next) return;
  event.preventDefault();
  next.focus();
});

onKey("/", () => {
  search.focus();
  search.select();
  return true;
});

markFound();
