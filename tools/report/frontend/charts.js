const style = {
  customFormatTypes: true,
  background: null,
  font: "system-ui, sans-serif",
  view: { stroke: null },
  axis: {
    labelColor: "var(--ink)", titleColor: "var(--muted)", titleFontWeight: "normal", gridColor: "var(--line)",
    domainColor: "var(--line)", tickColor: "var(--line)", labelFontSize: 11.5, titleFontSize: 11.5,
    labelLimit: 420, labelSeparation: 10,
  },
  axisDiscrete: { labelOverlap: "greedy" },
  legend: { labelColor: "var(--ink)", titleColor: "var(--muted)", titleFontWeight: "normal", labelFontSize: 11.5, titleFontSize: 11.5, labelLimit: 260, columns: 8 },
};
// the format of times (µs), bytes and counts, which charts ask for by their unit
const quantities = {
  µs: (value) => duration(1000 * value, fourDigits),
  B: (value) => scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]),
  count: (value) => scaled(value, 1000, ["", " k", " M", " G", " T", " P"]),
};
function scaled(value, step, names) {
  const power = value ? Math.max(0, Math.min(names.length - 1, Math.floor(Math.log(Math.abs(value)) / Math.log(step) + 1e-9))) : 0;
  return fourDigits.format(value / step ** power) + names[power];
}
const expressionFunctions = { quantity: (value, unit) => (value === null || value === undefined ? "" : value === 0 ? "0" : quantities[unit](value)) };

// `ast`: expressions are interpreted, as the page may not make scripts of texts
const options = { mode: "vega-lite", renderer: "svg", ast: true, actions: false, config: style, tooltip: (handler, event, item, value) => tell(value && Object.entries(value).filter(([, text]) => text !== ""), event), expressionFunctions };

// Charts

const specs = given("specs");
const isFolded = (element) => element.closest("details.fold:not([open])") !== null;
// charts in what is folded are drawn when it is opened, as they have no width before
async function drawCharts() {
  const waiting = Object.keys(specs).map((name) => document.getElementById(name)).filter((element) => !element.childElementCount && !isFolded(element));
  await Promise.all(waiting.map(drawChart));
  document.body.dataset.drawn = document.querySelectorAll(".chart svg").length;
}

// a mark with a name that the timeline shows leads there
async function drawChart(element) {
  const { view } = await vegaEmbed(element, specs[element.id], options), nameOf = (item) => item?.datum?.name ?? item?.datum?.step;
  const leads = (item) => Boolean(nameOf(item)) && timeline.shows(nameOf(item));
  view.addEventListener("click", (event, item) => { if (leads(item)) timeline.choose(nameOf(item), true); });
  view.addEventListener("mousemove", (event, item) => { element.style.cursor = leads(item) ? "pointer" : ""; });
}

// Folds

function unfold(element) {
  const fold = element?.querySelector("details.fold") ?? element?.closest("details.fold");
  if (fold) fold.open = true;
}
for (const fold of document.querySelectorAll("details.fold")) fold.addEventListener("toggle", drawCharts);
addEventListener("hashchange", () => unfold(document.getElementById(location.hash.slice(1))));
document.addEventListener("click", ({ target }) => {
  const link = target.closest("a[href^='#']"), section = link && document.getElementById(link.hash.slice(1));
  if (section?.matches("section")) unfold(section);
});

async function drawnTimeline() {
  if (!document.getElementById("timeline")) return;
  const { meta, ranks } = given("timeline-data");
  const view = new TimelineView(document.getElementById("timeline"), meta, await Promise.all(ranks.map((rank) => RankRun.of(meta, rank))));
  const choice = new Choice(view);
  Object.assign(timeline, { view, shows: (name) => choice.find(name) !== null, choose: (name, zoom) => choice.choose(name, zoom), select: (bar) => choice.select(bar) });
  for (const grid of grids) if (grid.details.open) grid.show();
}

drawnTimeline().then(drawCharts);
if (location.hash) unfold(document.getElementById(location.hash.slice(1)));
