"use strict";

const style = {
  background: null,
  font: "system-ui, sans-serif",
  view: { stroke: null },
  axis: {
    labelColor: "var(--ink)", titleColor: "var(--muted)", titleFontWeight: "normal", gridColor: "var(--line)",
    domainColor: "var(--line)", tickColor: "var(--line)", labelFontSize: 11.5, titleFontSize: 11.5,
    labelLimit: 420, labelOverlap: "greedy", labelSeparation: 10,
  },
  legend: { labelColor: "var(--ink)", titleColor: "var(--muted)", titleFontWeight: "normal", labelFontSize: 11.5, titleFontSize: 11.5, labelLimit: 260, columns: 8 },
};
const options = { renderer: "svg", actions: false, config: style, tooltip: { disableDefaultStyle: true } };

// Charts

// on a phone labels leave half of the width to the drawing, and titles of axes end where it does, so that nothing is cut
const PHONE = 600;
const onPhone = {
  axis: { labelLimit: 160, labelFontSize: 10.5 },
  axisX: { titleAnchor: "end", labelBound: true },
  legend: { columns: 1 },
};
const specs = JSON.parse(document.getElementById("specs").textContent);
if (innerWidth < PHONE) for (const spec of Object.values(specs)) spec.config = { ...spec.config, ...onPhone };
const drawn = Object.entries(specs).map(([name, spec]) =>
  vegaEmbed(document.getElementById(name), spec, options).then(({ view }) => [name, view]));
const views = Promise.all(drawn).then(Object.fromEntries);

// From a table to the timeline and back

views.then((all) => {
  const view = all["timeline-0"], panel = document.getElementById("chosen");
  document.body.dataset.drawn = Object.keys(all).length;
  if (!view) return;
  const bars = view.data("bars"), whole = view.scale("x").domain();
  const named = Map.groupBy(bars.flatMap((bar) => [[bar.name, bar], [bar.node, bar]]), ([name]) => name);

  function choose(name, zoom) {
    const shown = (named.get(name) ?? []).map(([, bar]) => bar);
    const rows = name ? grids.map((grid) => [grid, grid.rowsOf(name).length]).filter(([, count]) => count) : [];
    timeline.chosen = name;
    for (const [{ details }] of rows) details.open = true;
    for (const row of document.querySelectorAll("tr.found")) row.classList.remove("found");
    for (const cell of document.querySelectorAll("td[data-name]")) if (cell.dataset.name === name) cell.parentElement.classList.add("found");
    view.signal("chosen", name).runAsync();
    panel.hidden = !name;
    const [first] = shown;
    panel.children[0].textContent = first?.short ?? "";
    panel.children[1].textContent = `${shown.length} on this timeline, ${rows.reduce((sum, [, count]) => sum + count, 0)} rows in tables`;
    panel.querySelectorAll("a").forEach((link) => link.remove());
    for (const section of new Set(rows.map(([{ details }]) => details.closest("section")))) {
      const link = document.createElement("a");
      link.textContent = section.querySelector("h2").textContent;
      link.href = `#${section.id}`;
      panel.append(link);
    }
    if (!zoom) return;
    zoomTo(first);
    document.getElementById("run").scrollIntoView();
  }

  function show(from, to) {
    view.signal("view_start", [from, to]).runAsync();
  }

  function zoomTo(bar) {
    const half = Math.min(whole[1] - whole[0], Math.max(20 * bar.time, 10)) / 2, middle = bar.start + bar.time / 2;
    show(middle - half, middle + half);
  }

  Object.assign(timeline, { shows: (name) => named.has(name), choose });
  for (const grid of grids) if (grid.details.open) grid.show();
  view.addEventListener("click", (_, item) => item?.datum?.name && choose(item.datum.name));
  panel.querySelector("button").onclick = () => {
    choose("");
    show(...whole);
  };
});
