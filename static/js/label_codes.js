// The category of an error event: typed, found, chosen; its definition stands beside the one in hand.

const visible = (place) => [...place.querySelectorAll(".code")].filter((code) => !code.hidden);

function light(place, code) {
  for (const one of place.querySelectorAll(".code.lit")) one.classList.remove("lit");
  code?.classList.add("lit");
  code?.scrollIntoView({ block: "nearest" });
}

function number(place) {
  for (const code of place.querySelectorAll(".code kbd")) code.hidden = true;
  visible(place).slice(0, 9).forEach((code, at) => {
    const cap = code.querySelector("kbd");
    cap.textContent = String(at + 1);
    cap.hidden = false;
  });
}

// The list is there while the field is the active one.
export function showCodes(place, on) {
  place.querySelector(".codes").hidden = !on;
  if (!on) return;
  number(place);
  if (!place.querySelector(".code.lit")) light(place, place.querySelector('.code[aria-selected="true"]') ?? visible(place)[0]);
}

export function filterCodes(input) {
  const place = input.closest("[data-field]");
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const code of place.querySelectorAll(".code")) {
    code.hidden = !words.every((word) => code.dataset.words.includes(word));
  }
  number(place);
  light(place, visible(place)[0]);
}

export function moveCode(input, by) {
  const place = input.closest("[data-field]");
  const all = visible(place);
  const at = all.findIndex((code) => code.classList.contains("lit"));
  light(place, all[Math.min(Math.max(at + by, 0), all.length - 1)]);
}

export function chooseCode(code) {
  code?.form.requestSubmit(code);
}
