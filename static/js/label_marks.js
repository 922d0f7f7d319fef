// Marks of a label in steps and minimap, and words that a reader has selected in a step.

const AROUND = 60;
const kept = (text) => text.replace(/\s+/g, "");

// E1, E2 and the root cause in rows and minimap; quoted words are lit up without a node of their own.
export function markLabel(marks, steps, map) {
  for (const old of document.querySelectorAll(".event-mark")) old.remove();
  const ranges = [];
  for (const item of steps.querySelectorAll(":scope > li.step")) {
    const own = marks.filter((mark) => mark.step === Number(item.dataset.step) && mark.attempt === Number(item.dataset.attempt));
    const result = item.querySelector(".step-row .result");
    for (const mark of own.toReversed()) result?.prepend(sign(mark));
    const entry = document.getElementById(`map-${item.id}`)?.querySelector("a");
    for (const mark of own.slice(0, 2)) entry?.prepend(sign(mark, true));
    const seqs = item.dataset.seqs.split(",").map(Number);
    for (const quote of marks.flatMap((mark) => mark.quotes)) {
      if (quote.seq !== null && !seqs.includes(quote.seq)) continue;
      const range = find(item, quote.text);
      if (range) ranges.push(range);
    }
  }
  for (const mark of marks) {
    if (mark.seq && !document.getElementById(`event-${mark.seq}`)) document.getElementById(`map-event-${mark.seq}`)?.querySelector("a")?.prepend(sign(mark, true));
  }
  if (window.Highlight) CSS.highlights.set("evidence", new Highlight(...ranges));
}

function sign(mark, small = false) {
  const place = document.createElement("span");
  place.className = mark.root ? "event-mark root" : "event-mark";
  if (mark.root) place.title = "root cause";
  place.textContent = mark.root ? (small ? `◎E${mark.key}` : `◎ root cause · E${mark.key} · `) : (small ? `E${mark.key}` : `E${mark.key} · `);
  return place;
}

// The range of some words in a step, whatever the white space between them.
function find(item, words) {
  const wanted = kept(words);
  const body = item.querySelector(".step-body");
  if (!wanted || !body) return null;
  let text = "";
  const places = [];
  const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    for (let at = 0; at < node.data.length; at += 1) {
      if (/\s/.test(node.data[at])) continue;
      text += node.data[at];
      places.push([node, at]);
    }
    if (text.length > 400000) break;
  }
  const at = text.indexOf(wanted);
  if (at === -1) return null;
  const range = document.createRange();
  range.setStart(...places[at]);
  const [node, offset] = places[at + wanted.length - 1];
  range.setEnd(node, offset + 1);
  return range;
}

// What is selected in one step: the words, and some before and after by which they are found in the log.
export function wordsAround(steps) {
  const selection = getSelection();
  if (!selection || selection.isCollapsed) return null;
  const range = selection.getRangeAt(0);
  const start = range.startContainer.parentElement?.closest("li.step");
  if (!start || !steps.contains(start)) return null;
  const body = start.querySelector(".step-body");
  const before = document.createRange();
  before.setStart(body, 0);
  before.setEnd(range.startContainer, range.startOffset);
  const after = document.createRange();
  after.setStart(range.endContainer, range.endOffset);
  after.setEnd(body, body.childNodes.length);
  return { item: start, quote: selection.toString(), prefix: before.toString().slice(-AROUND), suffix: after.toString().slice(0, AROUND) };
}
