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
// `ast`: expressions are interpreted, as the page may not make scripts of texts
const options = { renderer: "svg", ast: true, actions: false, config: style, tooltip: { disableDefaultStyle: true } };

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

class Choice {
  constructor(view) {
    Object.assign(this, { view, panel: document.getElementById("chosen") });
    this.panel.querySelector("button").onclick = () => {
      this.choose("");
      view.showAll();
    };
  }

  // a name, or a node as `rank/id`: how many bars there are of it and where the first is
  find(name) {
    for (const run of this.view.runs) {
      const number = run.number.get(name);
      if (number !== undefined) return { run, of: (lane, row) => lane.name[row] === number, count: this.view.runs.reduce((sum, one) => sum + (one.often[one.number.get(name)] ?? 0), 0) };
    }
    const [, rank, node] = /^(\d+)\/(\d+)$/.exec(name) ?? [];
    const run = node && this.view.runs.find((one) => one.rank === Number(rank) && one.hasNode(Number(node)));
    return run ? { run, of: (lane, row) => lane.node[row] === Number(node), count: 1, rank: Number(rank), node: Number(node) } : null;
  }

  first({ run, of }) {
    let found = null;
    for (const lane of run.lanes)
      for (let row = 0; row < lane.count && (!found || lane.start[row] < found.lane.start[found.row]); row++)
        if (of(lane, row)) found = { lane, row };
    return found;
  }

  choose(name, zoom) {
    const { view, panel } = this, found = name ? this.find(name) : null, first = found && this.first(found);
    const rows = name ? grids.map((grid) => [grid, grid.rowsOf(name).length]).filter(([, count]) => count) : [];
    timeline.chosen = name;
    for (const [{ details }] of rows) details.open = true;
    for (const row of document.querySelectorAll("tr.found")) row.classList.remove("found");
    for (const cell of document.querySelectorAll("td[data-name]")) if (cell.dataset.name === name) cell.parentElement.classList.add("found");
    view.chosen = found && { name, rank: found.rank, node: found.node };
    view.redraw();
    panel.hidden = !name;
    panel.children[0].textContent = first ? first.lane.run.short[first.lane.name[first.row]] : "";
    panel.children[1].textContent = `${whole.format(found?.count ?? 0)} on this timeline, ${rows.reduce((sum, [, count]) => sum + count, 0)} rows in tables`;
    panel.querySelectorAll("a").forEach((link) => link.remove());
    for (const section of new Set(rows.map(([{ details }]) => details.closest("section")))) {
      const link = document.createElement("a");
      link.textContent = section.querySelector("h2").textContent;
      link.href = `#${section.id}`;
      panel.append(link);
    }
    if (zoom && first) this.zoomTo(first);
  }

  zoomTo({ lane, row }) {
    const time = lane.end[row] - lane.start[row], half = Math.max(4 * time, 5000), middle = lane.start[row] + time / 2;
    this.view.show(middle - half, middle + half);
    this.view.reveal(lane);
    document.getElementById("run").scrollIntoView();
  }
}

async function drawnTimeline() {
  const packed = document.getElementById("timeline-data");
  if (!packed) return;
  const { meta, ranks } = JSON.parse(packed.textContent);
  const view = new TimelineView(document.getElementById("timeline"), meta, await Promise.all(ranks.map((rank) => RankRun.of(meta, rank))));
  const choice = new Choice(view);
  document.querySelector(".whole-run").classList.add("spare");
  Object.assign(timeline, { view, shows: (name) => choice.find(name) !== null, choose: (name, zoom) => choice.choose(name, zoom) });
  for (const grid of grids) if (grid.details.open) grid.show();
}

Promise.all([views, drawnTimeline()]).then(([all]) => { document.body.dataset.drawn = Object.keys(all).length; });
