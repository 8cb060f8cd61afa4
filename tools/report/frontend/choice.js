// What is chosen on the timeline: a name, as in tables, a text that names contain, or a bar, with what released it and what it releases

const LISTED = 5;

class Choice {
  constructor(view) {
    Object.assign(this, { view, panel: document.getElementById("chosen"), search: view.element.querySelector(".find"), hits: [], hit: -1 });
    this.chain = this.panel.querySelector(".chain");
    this.panel.querySelector("button").onclick = () => {
      this.choose("");
      view.showAll();
    };
    this.search.oninput = () => this.seek(this.search.value.trim().toLowerCase());
    this.search.onkeydown = (event) => {
      if (event.key === "Enter") this.next(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") { this.choose(""); view.scroller.focus(); }
    };
  }

  // By name

  // a name, or a node as `rank/id`: how many bars there are of it, by themselves or else as ops around others
  find(name) {
    const names = this.numbers((full) => full === name, name);
    if (names.size) return { names, count: [...names].reduce((sum, [run, numbers]) => sum + [...numbers].reduce((all, number) => all + run.often[number], 0), 0) };
    const [, rank, node] = /^(\d+)\/(\d+)$/.exec(name) ?? [];
    const run = node && this.view.runs.find((one) => one.rank === Number(rank) && one.hasNode(Number(node)));
    return run ? { names, count: 1, rank: Number(rank), node: Number(node) } : null;
  }

  // the numbers of the names of each rank that fit; of one whole name without going through all
  numbers(fits, name) {
    const found = new Map();
    for (const run of this.view.runs) {
      const numbers = name === undefined ? [...run.full.keys()].filter((number) => fits(run.full[number])) : run.number.has(name) ? [run.number.get(name)] : [];
      if (numbers.length) found.set(run, new Set(numbers));
    }
    return found;
  }

  // where it is, in order of time: bars, and ops of names that no bar has
  places({ names, rank, node }) {
    const places = [];
    for (const run of this.view.runs) {
      const numbers = names.get(run);
      if (!numbers && run.rank !== rank) continue;
      for (const lane of run.lanes) {
        for (let row = 0; row < lane.count; row++) if (numbers?.has(lane.name[row]) || (run.rank === rank && lane.node[row] === node)) places.push({ run, lane, row, start: lane.start[row], end: lane.end[row] });
        const { ops } = lane;
        for (let row = 0; row < ops.name.length; row++) if (numbers?.has(ops.name[row]) && !run.often[ops.name[row]]) places.push({ run, lane, op: row, start: ops.start[row], end: ops.end[row] });
      }
    }
    return places.sort((a, b) => a.start - b.start);
  }

  choose(name, zoom) {
    const found = name ? this.find(name) : null, [first] = found ? this.places(found) : [];
    if (!name) this.search.value = "";
    this.hits = [];
    this.view.selected = null;
    this.tell();
    this.mark(found, name, first ? this.nameOf(first) : "");
    this.chain.replaceChildren();
    if (zoom && first) this.zoomTo(first);
  }

  nameOf({ run, lane, row, op }) {
    return run.short[op === undefined ? lane.name[row] : lane.ops.name[op]];
  }

  // what is found stands out on the timeline and in tables
  mark(found, name, title) {
    const { view, panel } = this, rows = name ? grids.map((grid) => [grid, grid.rowsOf(name).length]).filter(([, count]) => count) : [];
    timeline.chosen = name;
    for (const [{ details }] of rows) details.open = true;
    for (const row of document.querySelectorAll("tr.found")) row.classList.remove("found");
    for (const cell of document.querySelectorAll("td[data-name]")) if (cell.dataset.name === name) cell.parentElement.classList.add("found");
    view.chosen = found;
    view.redraw();
    panel.hidden = !name;
    panel.children[0].textContent = title;
    panel.children[1].textContent = `${whole.format(found?.count || 1)} on this timeline, ${rows.reduce((sum, [, count]) => sum + count, 0)} rows in tables`;
    panel.querySelectorAll("a").forEach((link) => link.remove());
    for (const section of new Set(rows.map(([{ details }]) => details.closest("section")))) {
      this.chain.before(made("a", { href: `#${section.id}`, textContent: section.querySelector("h2, h3").textContent }));
    }
  }

  zoomTo({ lane, row, op, start, end }) {
    if (op === undefined) this.view.focusOn({ lane, row });
    else {
      this.view.show(start - (end - start) / 4, end + (end - start) / 4);
      this.view.reveal(lane);
    }
    document.getElementById("run").scrollIntoView();
  }

  // By a part of names

  seek(text) {
    const names = text ? this.numbers((full) => full.toLowerCase().includes(text)) : new Map(), found = text ? { names } : null;
    Object.assign(this, { hits: found ? this.places(found) : [], hit: -1 });
    this.view.selected = null;
    this.view.chosen = found;
    this.panel.hidden = true;
    this.tell();
    this.view.redraw();
  }

  next(by) {
    if (!this.hits.length) return;
    this.hit = (this.hit + by + this.hits.length + (this.hit < 0 && by < 0)) % this.hits.length;
    const place = this.hits[this.hit], { chosen } = this.view;
    if (place.op === undefined) this.select(place);
    else this.view.selected = null;
    this.panel.hidden = place.op !== undefined;
    // all that was found still stands out
    this.view.chosen = chosen;
    this.zoomTo(place);
    this.tell();
  }

  tell() {
    const at = this.hit < 0 ? "" : `${whole.format(this.hit + 1)} of `;
    this.view.element.querySelector(".hits").textContent = this.search.value ? `${at}${whole.format(this.hits.length)} found` : "";
  }

  // By a bar

  select(bar, move) {
    const { run, lane, row } = bar, name = run.full[lane.name[row]];
    this.mark(this.find(name), name, run.short[lane.name[row]]);
    this.view.selected = bar;
    const [before, after] = [this.released(bar), this.releases(bar)];
    this.chain.replaceChildren(...this.listed("Released by", before, (other) => `${duration(lane.start[row] - other.lane.end[other.row], fourDigits)} before`),
      ...this.listed("Releases", after, (other) => `${duration(other.lane.start[other.row] - lane.end[row], fourDigits)} later`));
    if (move && (lane.end[row] < this.view.from || lane.start[row] > this.view.to)) this.view.focusOn(bar);
    else this.view.reveal(lane);
  }

  // the bars that it waits for, the one that ended last first, as that released it
  released({ run, lane, row }) {
    const { source, target, reason } = run.arrows, own = lane.first + row, found = [];
    for (let index = firstAbove(target, own - 1); index < target.length && target[index] === own; index++) found.push({ ...run.barAt(source[index]), why: this.view.meta.reasons[reason[index]] });
    if (row) found.push({ run, lane, row: row - 1, why: this.order(lane) });
    return found.sort((a, b) => b.lane.end[b.row] - a.lane.end[a.row]);
  }

  // the bars that wait for it, by their start
  releases({ run, lane, row }) {
    const { source, target, reason } = run.arrows, own = lane.first + row, found = [];
    source.forEach((from, index) => { if (from === own) found.push({ ...run.barAt(target[index]), why: this.view.meta.reasons[reason[index]] }); });
    if (row + 1 < lane.count) found.push({ run, lane, row: row + 1, why: this.order(lane) });
    return found.sort((a, b) => a.lane.start[a.row] - b.lane.start[b.row]);
  }

  order(lane) {
    return / stream /.test(lane.label) ? "stream order" : "program order";
  }

  listed(title, bars, distance) {
    if (!bars.length) return [];
    const buttons = bars.slice(0, LISTED).map((bar) => {
      const { run, lane, row, why } = bar;
      const textContent = `${run.short[lane.name[row]]} · ${why}, ${lane.label.replace(/^rank \d+ · /, "")}, ${distance(bar)}`;
      return made("button", { textContent, onclick: () => this.select(bar, true) });
    });
    return [made("div", {}, made("span", `${title} `), ...buttons, bars.length > LISTED ? `and ${whole.format(bars.length - LISTED)} more` : "")];
  }
}
