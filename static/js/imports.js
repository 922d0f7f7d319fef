// Files for an import: dropped or chosen, shown before they go, and sent with their progress.
// Without this script the form sends the chosen files by itself.

const form = document.getElementById("import-form");
const list = document.getElementById("chosen-files");
const progress = document.getElementById("upload-progress");
const bar = progress?.querySelector("progress");
const said = progress?.querySelector("[data-said]");
const MOST_NAMED = 8;
const MOST_AT_ONCE = 50;
const BYTES_AT_ONCE = 32_000_000;

// The chosen files with their paths: a folder's files keep theirs, which a form alone would drop.
let chosen = [];
let tries = 0;

function bytes(number) {
  const units = ["B", "KB", "MB", "GB"];
  let at = 0;
  let shown = number;
  while (shown >= 1000 && at < units.length - 1) {
    shown /= 1000;
    at += 1;
  }
  return `${shown.toLocaleString("en", { maximumFractionDigits: at ? 1 : 0 })} ${units[at]}`;
}

function show() {
  const total = chosen.reduce((sum, one) => sum + one.file.size, 0);
  const lines = chosen.slice(0, MOST_NAMED).map((one) => {
    const line = document.createElement("li");
    line.textContent = `${one.path} `;
    const size = document.createElement("span");
    size.className = "label";
    size.textContent = bytes(one.file.size);
    line.append(size);
    return line;
  });
  if (chosen.length > MOST_NAMED) {
    const line = document.createElement("li");
    line.className = "second";
    line.textContent = `and ${(chosen.length - MOST_NAMED).toLocaleString("en")} more`;
    lines.push(line);
  }
  list.replaceChildren(...lines);
  const count = chosen.length === 1 ? "1 file" : `${chosen.length.toLocaleString("en")} files`;
  form.querySelector("[data-count]").textContent = chosen.length ? `${count}, ${bytes(total)}` : "";
  form.querySelector("button[data-send]").disabled = chosen.length === 0;
}

function take(found) {
  chosen = [...chosen, ...found];
  show();
}

// A dropped folder is walked: its entries come in portions until an empty one.
async function walk(entry, path) {
  if (entry.isFile) {
    const file = await new Promise((done, failed) => entry.file(done, failed));
    return [{ file, path: path + file.name }];
  }
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const portion = await new Promise((done, failed) => reader.readEntries(done, failed));
    if (portion.length === 0) return found;
    for (const child of portion) found.push(...(await walk(child, `${path}${entry.name}/`)));
  }
}

function drop(event) {
  event.preventDefault();
  form.classList.remove("over");
  // Both are gone once the event is over.
  const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const files = [...event.dataTransfer.files];
  if (entries.length === 0) {
    take(files.map((file) => ({ file, path: file.name })));
    return;
  }
  Promise.all(entries.map((entry) => walk(entry, ""))).then(
    (found) => take(found.flat()),
    () => fail("The folder could not be read by the browser. Pack it as .zip or .tar.gz and drop that."),
  );
}

function fail(words) {
  const place = document.getElementById("upload-error");
  place.hidden = false;
  place.querySelector("span").textContent = words;
  progress.hidden = true;
  form.querySelector("button[data-send]").disabled = false;
}

// Many files go in several requests, each of a size that a server takes at once, into one import.
function portions() {
  const all = [[]];
  let size = 0;
  for (const one of chosen) {
    const last = all.at(-1);
    if (last.length > 0 && (last.length >= MOST_AT_ONCE || size + one.file.size > BYTES_AT_ONCE)) {
      all.push([one]);
      size = one.file.size;
    } else {
      last.push(one);
      size += one.file.size;
    }
  }
  return all;
}

// Resolves to the answer's JSON; rejects with words for people.
function post(files, { key, more, sent, total }) {
  const body = new FormData();
  body.append("csrfmiddlewaretoken", form.elements.csrfmiddlewaretoken.value);
  body.append("name", form.elements.name.value);
  body.append("key", key);
  if (more) body.append("more", "yes");
  for (const one of files) {
    body.append("files", one.file);
    body.append("paths", one.path);
  }
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open("POST", form.action);
    request.setRequestHeader("X-Requested-With", "fetch");
    request.upload.addEventListener("progress", (step) => {
      const whole = Math.min(sent + step.loaded, total);
      bar.value = whole;
      said.textContent = whole < total ? `${bytes(whole)} of ${bytes(total)}` : "all sent, one moment";
    });
    request.addEventListener("error", () => failed("The connection broke while sending. Send again."));
    request.addEventListener("load", () => {
      try {
        const answer = JSON.parse(request.responseText);
        if (answer.error) failed(answer.error);
        else done(answer);
      } catch {
        const words = request.status === 401 ? "Sign in again" : `The lab answered ${request.status}`;
        failed(`${words}. Nothing was imported: send again.`);
      }
    });
    request.send(body);
  });
}

async function send(event) {
  event.preventDefault();
  if (chosen.length === 0 || !progress.hidden) return;
  const total = chosen.reduce((sum, one) => sum + one.file.size, 0);
  tries += 1;
  const key = `${form.elements.key.value}-${tries}`;
  document.getElementById("upload-error").hidden = true;
  progress.hidden = false;
  bar.max = Math.max(total, 1);
  bar.value = 0;
  form.querySelector("button[data-send]").disabled = true;
  const all = portions();
  let sent = 0;
  try {
    for (const [at, files] of all.entries()) {
      const answer = await post(files, { key, more: at < all.length - 1, sent, total });
      sent += files.reduce((sum, one) => sum + one.file.size, 0);
      if (answer.location) location.assign(answer.location);
    }
  } catch (words) {
    fail(String(words));
  }
}

if (form) {
  form.addEventListener("submit", send);
  for (const input of form.querySelectorAll("input[type=file]")) {
    input.addEventListener("change", () => {
      take([...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name })));
      input.value = "";
    });
  }
  form.querySelector("[data-clear]").addEventListener("click", () => {
    chosen = [];
    show();
  });
  // Dropped anywhere on the page, so that a near miss does not make the browser leave it.
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    form.classList.add("over");
  });
  document.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) form.classList.remove("over");
  });
  document.addEventListener("drop", drop);
  show();
}
