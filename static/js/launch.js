// The launch form says what its button will do, and shows the chosen harness's limits as placeholders.

const form = document.querySelector("[data-launch-form]");

function count(name) {
  return form.querySelectorAll(`input[name="${name}"]:checked`).length;
}

function plural(number, word) {
  return `${number} ${word}${number === 1 ? "" : "s"}`;
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
  const real = form.querySelectorAll('input[name="models"]:checked:not([data-scripted])').length;
  form.querySelector("[data-launch-forecast]").textContent = real || !runs ? "" : "scripted models cost nothing";
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
  window.addEventListener("pageshow", describe);
  describe();
  showLimits();
  form.querySelector("[data-errors]")?.focus();
}
