// Draws the plots that the server describes in <script type="application/json">, in the colours of the page's theme.
//
// A description names colours by their role ("@plot-1" is the custom property --plot-1), so it is the same in dark and
// light; it is drawn when it comes near the window, and again when the theme changes. Plotly is loaded with the first.

const NEAR = "600px";
const ROLE = /^@([a-z][a-z0-9-]*)$/;
const CONFIG = { displayModeBar: false, responsive: true, staticPlot: false, doubleClick: false, showTips: false, scrollZoom: false };
const IMAGE = { width: 960, scale: 2 };

const drawn = new Map();
let loading = null;

function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = document.querySelector("[data-plotly]").dataset.plotly;
    script.addEventListener("load", () => resolve(window.Plotly));
    script.addEventListener("error", () => { loading = null; reject(new Error("the plot library did not arrive")); });
    document.head.append(script);
  });
  return loading;
}

function coloured(value, styles) {
  if (Array.isArray(value)) return value.map((one) => coloured(one, styles));
  if (value && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, coloured(one, styles)]));
  }
  const role = typeof value === "string" && ROLE.exec(value);
  return role ? styles.getPropertyValue(`--${role[1]}`).trim() : value;
}

function merged(base, over) {
  const both = { ...base };
  for (const [key, value] of Object.entries(over)) {
    const inner = value && typeof value === "object" && !Array.isArray(value) && base[key] && typeof base[key] === "object";
    both[key] = inner ? merged(base[key], value) : value;
  }
  return both;
}

function described(box) {
  return JSON.parse(document.getElementById(box.dataset.plot).textContent);
}

const AXIS = {
  gridcolor: "@line", linecolor: "@line-strong", tickcolor: "@line-strong", zeroline: false, showline: false,
  ticks: "outside", ticklen: 4, fixedrange: true, automargin: true, title: { font: { size: 12, color: "@ink-3" } },
};

function layoutOf(description, font) {
  const layout = {
    paper_bgcolor: "transparent", plot_bgcolor: "transparent", showlegend: false, hovermode: "closest", dragmode: false,
    font: { family: font, size: 12, color: "@ink-2" }, margin: { l: 56, r: 16, t: 8, b: 40 }, autosize: true,
    hoverlabel: { bgcolor: "@raised", bordercolor: "@line-strong", font: { family: font, size: 12, color: "@ink" } },
    ...description.layout,
  };
  for (const key of Object.keys(layout)) if (/^[xy]axis\d*$/.test(key)) layout[key] = merged(AXIS, layout[key]);
  return layout;
}

// Widths are not the description's: on a narrow page names move above their points instead of growing the margin.
function figure(box, extra = {}) {
  const styles = getComputedStyle(document.documentElement);
  const description = described(box);
  const font = getComputedStyle(document.body).fontFamily;
  const layout = merged(layoutOf(description, font), extra);
  return coloured({ data: description.data, layout }, styles);
}

async function draw(box) {
  const library = await plotly();
  const { data, layout } = figure(box);
  await library.react(box, data, layout, CONFIG);
  if (!drawn.has(box)) {
    box.on("plotly_click", (event) => {
      const at = event.points?.[0]?.customdata;
      const address = Array.isArray(at) ? at[0] : at;
      if (typeof address === "string" && address.startsWith("/")) location.assign(address);
    });
  }
  drawn.set(box, true);
  box.dataset.drawn = document.documentElement.dataset.theme ?? "system";
  // The table below holds the same numbers; what is drawn is one picture with one name.
  box.querySelectorAll("svg").forEach((svg) => svg.setAttribute("aria-hidden", "true"));
}

function failed(box, error) {
  box.dataset.failed = "";
  box.textContent = `Not drawn: ${error.message}. The numbers are in the table.`;
}

function safely(box) {
  return draw(box).catch((error) => failed(box, error));
}

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    near.unobserve(entry.target);
    safely(entry.target);
  }
}, { rootMargin: NEAR });

export function watch(root = document) {
  root.querySelectorAll("[data-plot]").forEach((box) => near.observe(box));
}

function redraw() {
  for (const box of drawn.keys()) safely(box);
}

// Texts of a plot may hold tags, which would become style attributes: none of ours does.
function plain(text) {
  return text.replaceAll("<", "‹").replaceAll(">", "›");
}

// A picture for a paper stands alone: with title, subtitle, a ground, and the names that the table beside it gives.
export async function imageOf(box, format) {
  const library = await plotly();
  const description = described(box);
  const title = {
    text: plain(description.title), font: { size: 15, color: "@ink", weight: 600 }, x: 0.02, xref: "container", xanchor: "left", y: 0.98, yref: "container", yanchor: "top",
    subtitle: { text: plain(description.subtitle), font: { size: 12, color: "@ink-2" } },
  };
  const { data, layout } = figure(box, merged({ paper_bgcolor: "@surface", title, margin: { t: 72 } }, description.image ?? {}));
  const height = description.image?.height ?? Math.max(box.clientHeight + 64, 260);
  return library.toImage({ data, layout }, { format, width: IMAGE.width, height, scale: format === "png" ? IMAGE.scale : 1 });
}

async function download(button) {
  const box = document.getElementById(button.dataset.of);
  const format = button.dataset.image;
  button.disabled = true;
  try {
    const address = await imageOf(box, format);
    const link = document.createElement("a");
    link.href = address;
    link.download = `${box.dataset.name}.${format}`;
    link.click();
  } finally {
    button.disabled = false;
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-image]");
  if (button) download(button).catch((error) => { document.getElementById("said").textContent = `No picture: ${error.message}`; });
});

new MutationObserver(redraw).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
watch();
