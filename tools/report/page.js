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

const specs = JSON.parse(document.getElementById("specs").textContent);
const drawn = Object.entries(specs).map(([name, spec]) =>
  vegaEmbed(document.getElementById(name), spec, options).then(({ view }) => [name, view]));
const views = Promise.all(drawn).then(Object.fromEntries);

// Sorting: a click on a heading, numbers by their value, the largest first

function sortBy(heading) {
  const row = heading.parentElement, column = [...row.children].indexOf(heading), body = row.closest("table").tBodies[0];
  const number = heading.classList.contains("number");
  const down = heading.ariaSort ? heading.ariaSort === "ascending" : number;
  const key = (line) => line.cells[column].dataset.key;
  const compare = (a, b) => number
    ? (key(a) ?? -Infinity) - (key(b) ?? -Infinity)
    : a.cells[column].textContent.localeCompare(b.cells[column].textContent);
  body.append(...[...body.rows].sort((a, b) => (down ? -1 : 1) * compare(a, b)));
  for (const other of row.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
}

for (const button of document.querySelectorAll("th button")) button.onclick = () => sortBy(button.parentElement);

// From a table to the timeline and back

views.then((all) => {
  const view = all["timeline-0"], panel = document.getElementById("chosen");
  document.body.dataset.drawn = Object.keys(all).length;
  if (!view) return;
  const bars = view.data("bars"), whole = view.scale("x").domain();
  const cells = [...document.querySelectorAll("td[data-name]")];
  const named = Map.groupBy(bars.flatMap((bar) => [[bar.name, bar], [bar.node, bar]]), ([name]) => name);

  function choose(name) {
    const shown = (named.get(name) ?? []).map(([, bar]) => bar), rows = cells.filter((cell) => cell.dataset.name === name);
    for (const row of document.querySelectorAll("tr.found")) row.classList.remove("found");
    for (const cell of rows) {
      cell.parentElement.classList.add("found");
      cell.closest("details")?.setAttribute("open", "");
    }
    view.signal("chosen", name).runAsync();
    panel.hidden = !name;
    const [first] = shown;
    panel.children[0].textContent = first?.short ?? "";
    panel.children[1].textContent = `${shown.length} on this timeline, ${rows.length} rows in tables`;
    panel.querySelectorAll("a").forEach((link) => link.remove());
    for (const section of new Set(rows.map((cell) => cell.closest("section")))) {
      const link = document.createElement("a");
      link.textContent = section.querySelector("h2").textContent;
      link.href = `#${section.id}`;
      panel.append(link);
    }
    return first;
  }

  function show(from, to) {
    view.signal("view_start", [from, to]).runAsync();
  }

  function zoomTo(bar) {
    const half = Math.min(whole[1] - whole[0], Math.max(20 * bar.time, 10)) / 2, middle = bar.start + bar.time / 2;
    show(middle - half, middle + half);
  }

  for (const cell of cells) {
    cell.onclick = () => {
      zoomTo(choose(cell.dataset.name));
      document.getElementById("run").scrollIntoView();
    };
  }
  view.addEventListener("click", (_, item) => item?.datum?.name && choose(item.datum.name));
  panel.querySelector("button").onclick = () => {
    choose("");
    show(...whole);
  };
});
