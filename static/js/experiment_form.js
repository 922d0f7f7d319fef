// The form of a new experiment: rows and columns of arms at a click, a filter over tasks, and a button that
// says what it will do. What it would take is worked out by the server, which htmx asks as one types.
//
// Everything works without this: each button sends the form, and it comes back with what was typed in it.

const form = document.querySelector("[data-experiment-form]");
document.documentElement.classList.add("script");

function changed() {
  form.dispatchEvent(new CustomEvent("preview", { bubbles: true }));
}

// ---- arms ------------------------------------------------------------------------------------------------------

function flip(boxes) {
  const on = boxes.some((box) => !box.checked);
  for (const box of boxes) box.checked = on;
  changed();
}

form.addEventListener("click", (event) => {
  const column = event.target.closest("[data-column]");
  const row = event.target.closest("[data-row-of-ticks]");
  if (column) flip([...form.querySelectorAll(`[data-arms] tbody td:nth-child(${Number(column.dataset.column) + 1}) input`)]);
  if (row) flip([...row.closest("tr").querySelectorAll("td input")]);
  const tick = event.target.closest("[data-tick]");
  if (tick) {
    for (const line of form.querySelectorAll("[data-ticks] [data-words]:not([hidden]) input")) line.checked = tick.dataset.tick === "all";
    countTicks();
    changed();
  }
});

// ---- tasks -----------------------------------------------------------------------------------------------------

function countTicks() {
  const place = form.querySelector("[data-ticked-count]");
  if (!place) return;
  const boxes = [...form.querySelectorAll('[data-ticks] input[name="task"]')];
  place.textContent = `${boxes.filter((box) => box.checked).length} of ${boxes.length}`;
}

function filter(words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  for (const line of form.querySelectorAll("[data-ticks] [data-words]")) {
    const text = line.dataset.words.toLowerCase();
    line.hidden = !wanted.every((word) => text.includes(word));
  }
}

form.addEventListener("input", (event) => {
  if (event.target.matches("[data-filter]")) {
    filter(event.target.value);
    event.stopImmediatePropagation();
  }
  countTicks();
}, true);

// Another set: its tasks come from the server, and nothing else of the form changes.
form.querySelector("[data-task-set]").addEventListener("change", async () => {
  const fields = new FormData(form);
  fields.set("do", "tasks");
  const headers = { "HX-Request": "true", "X-CSRFToken": document.body.dataset.token };
  const answer = await fetch(form.action, { method: "POST", body: fields, headers });
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  document.getElementById("experiment-tasks").replaceWith(page.getElementById("experiment-tasks"));
  countTicks();
});

// ---- the button ------------------------------------------------------------------------------------------------

const label = form.querySelector("[data-launch-label]");

new MutationObserver(() => {
  const runs = Number(document.getElementById("experiment-preview")?.dataset.runs ?? 0);
  if (!form.querySelector("[data-launch]").hasAttribute("aria-disabled")) {
    label.textContent = runs ? `Launch ${runs.toLocaleString("en")} run${runs === 1 ? "" : "s"}` : "Launch";
  }
}).observe(document.querySelector("aside[aria-label=Preview]"), { attributes: true, childList: true, subtree: true, attributeFilter: ["data-runs"] });

form.addEventListener("submit", (event) => {
  if (!event.submitter?.matches("[data-launch]")) return;
  event.submitter.setAttribute("aria-disabled", "true");
  label.textContent = "Launching";
});

// A page that Back restored: its button was pressed and its key is used, and the next press is meant anew.
window.addEventListener("pageshow", (event) => {
  const back = event.persisted || performance.getEntriesByType("navigation")[0]?.type === "back_forward";
  if (back) {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    form.elements.idempotency_key.value = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    form.querySelector("[data-launch]").removeAttribute("aria-disabled");
    // The browser puts back what was typed, and htmx begins to listen, around this event and not before it.
    setTimeout(changed, 200);
  }
  countTicks();
});

if (!document.querySelector("[aria-invalid]")) document.querySelector("[data-errors]")?.focus();
countTicks();
