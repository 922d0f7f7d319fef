// A server's list of models: searched while one types, chosen models kept above whatever is searched next.

import { onKey } from "./keys.js";

const search = document.querySelector("[data-search]");
const form = document.querySelector("[data-models]");
const kept = document.querySelector("[data-chosen]");
const failed = document.querySelector("[data-search-failed]");
const WAIT = 150;
let timer = 0;
let asked = 0;

function chosenIds() {
  return new Set([...kept.querySelectorAll("input:checked")].map((input) => input.value));
}

// What is found shows what is chosen, and the button says how many models it would add.
function markChosen() {
  const ids = chosenIds();
  for (const input of form.querySelectorAll("#found input")) input.checked = ids.has(input.value);
  kept.hidden = ids.size === 0;
  const words = { 0: "Add the chosen models", 1: "Add 1 chosen model" }[ids.size];
  form.querySelector("[data-add-label]").textContent = words ?? `Add ${ids.size} chosen models`;
}

function choose(input) {
  const row = input.closest("li").cloneNode(true);
  row.querySelectorAll(".label").forEach((label) => label.remove());
  row.querySelector("input").checked = true;
  kept.querySelector("ul").append(row);
}

// Whoever stands in the row that goes is taken to the one beside it.
function leave(row) {
  const next = row.nextElementSibling ?? row.previousElementSibling;
  const stoodThere = row.contains(document.activeElement);
  row.remove();
  if (stoodThere) (next?.querySelector("input") ?? search).focus();
}

// The fragment, or null where there is none: no answer, an error, or the page for signing in.
async function fragment(address) {
  try {
    const answer = await fetch(address, { headers: { "X-Requested-With": "fetch" } });
    return answer.ok && !answer.redirected ? await answer.text() : null;
  } catch {
    return null;
  }
}

// The list is replaced whole; whoever walks in it stays on the same model, else on the first.
function replaceFound(text) {
  const stood = document.activeElement?.closest("#found") ? document.activeElement.value : null;
  document.getElementById("found").outerHTML = text;
  if (stood === null) return;
  const inputs = [...form.querySelectorAll("#found input")];
  (inputs.find((input) => input.value === stood) ?? inputs[0] ?? search).focus();
}

async function show() {
  clearTimeout(timer);
  const mine = ++asked;
  const words = search.value;
  const address = new URL(location.href);
  address.searchParams.delete("again");
  address.searchParams.set("q", words);
  const text = await fragment(address);
  if (mine !== asked) return;
  failed.hidden = text !== null;
  if (text === null) return;
  replaceFound(text);
  form.elements.q.value = words;
  history.replaceState(null, "", address);
  markChosen();
  form.querySelector("[data-said]").textContent = form.querySelector("#found [data-count]").textContent;
}

search.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(show, WAIT);
});
search.form.addEventListener("submit", (event) => {
  event.preventDefault();
  show();
});

form.addEventListener("change", (event) => {
  const input = event.target.closest('input[name="chosen"]');
  if (!input) return;
  const there = [...kept.querySelectorAll("input")].find((one) => one.value === input.value);
  if (!input.checked && there) leave(there.closest("li"));
  else if (!there) choose(input);
  markChosen();
});

form.addEventListener("click", (event) => {
  if (!event.target.closest("[data-clear]")) return;
  event.preventDefault();
  search.value = "";
  search.focus();
  show();
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

markChosen();
