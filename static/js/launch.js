// The launch form says what its button will do, and shows the chosen harness's limits as placeholders.

const form = document.querySelector("[data-launch-form]");

function count(name) {
  return form.querySelectorAll(`input[name="${name}"]:checked`).length;
}

function plural(number, word) {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
}

function minutes(seconds) {
  return seconds < 90 ? `${Math.max(1, Math.round(seconds))} s` : `${Math.round(seconds / 60)} min`;
}

// What earlier runs of each chosen model took; what is not known is said, never guessed.
function forecast(runsEach) {
  const chosen = [...form.querySelectorAll('input[name="models"]:checked')];
  const parts = chosen.filter((input) => !("scripted" in input.dataset)).map((input) => {
    const name = input.dataset.name;
    const seen = JSON.parse(input.dataset.forecast);
    if (!seen) return `${name}: time and cost unknown, no earlier run`;
    const cost = seen.dollars === null ? "cost unknown" : `$${(seen.dollars * runsEach).toFixed(2)}`;
    return `${name}: about ${minutes(seen.seconds * runsEach)} of work and ${cost}, from ${plural(seen.runs, "earlier run")}`;
  });
  if (parts.length < chosen.length) parts.push("scripted models cost nothing");
  return parts.join("; ");
}

function describe() {
  const tasks = count("tasks");
  const models = count("models");
  const typed = Number.parseInt(form.elements.seeds.value || "1", 10);
  const seeds = Number.isFinite(typed) && typed > 0 ? typed : 1;
  const runs = tasks * models * seeds;
  const total = form.querySelectorAll('input[name="tasks"]').length;
  form.querySelector('[data-count-of="tasks"]').textContent = `${tasks} of ${total}`;
  form.querySelector('[data-count-of="models"]').textContent = `${models} chosen`;
  const label = form.querySelector("[data-launch-label]");
  if (label) label.textContent = runs ? `Launch ${plural(runs, "run")}` : "Launch";
  form.querySelector("[data-launch-sum]").textContent = runs
    ? `${plural(tasks, "task")} × ${plural(models, "model")} × ${plural(seeds, "seed")}`
    : "choose at least one task and one model";
  form.querySelector("[data-launch-forecast]").textContent = runs ? forecast(tasks * seeds) : "";
}

function showLimits() {
  const harness = form.querySelector('input[name="harness_version"]:checked');
  if (!harness) return;
  const limits = JSON.parse(harness.dataset.limits);
  for (const field of form.querySelectorAll("[data-limit]")) {
    field.placeholder = limits[field.dataset.limit] ?? "no limit";
  }
}

if (form) {
  form.addEventListener("input", describe);
  form.addEventListener("change", showLimits);
  // A double click must not look like two launches: the server would answer both with the same experiment.
  form.addEventListener("submit", (event) => {
    const button = event.submitter;
    if (!button?.matches("[data-launch]")) return;
    button.setAttribute("aria-disabled", "true");
    form.querySelector("[data-launch-label]").textContent = "Launching";
  });
  // A page that Back restored: its button was pressed and its key is used, and the next press is meant anew.
  window.addEventListener("pageshow", (event) => {
    const back = event.persisted || performance.getEntriesByType("navigation")[0]?.type === "back_forward";
    if (back) {
      const bytes = crypto.getRandomValues(new Uint8Array(16));
      form.elements.idempotency_key.value = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
      form.querySelector("[data-launch]")?.removeAttribute("aria-disabled");
    }
    describe();
  });
  describe();
  showLimits();
  if (!form.querySelector("[aria-invalid]")) form.querySelector("[data-errors]")?.focus();
}
