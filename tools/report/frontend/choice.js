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
    const names = new Map(this.view.runs.filter((run) => run.number.has(name)).map((run) => [run, new Set([run.number.get(name)])]));
    if (names.size) return { names, count: [...names.keys()].reduce((sum, run) => sum + run.often[run.number.get(name)], 0) };
    const [rank, node] = /^\d+\/\d+$/.test(name) ? name.split("/").map(Number) : [];
    return this.view.runs.some((run) => run.rank === rank && run.hasNode(node)) ? { names, count: 1, rank, node } : null;
  }

  // where it is, in order of time: bars, and ops of names that no bar has
  items({ names, rank, node }) {
    const items = [];
    for (const lane of this.view.lanes) {
      const { run, ops } = lane, numbers = names.get(run);
      if (!numbers && run.rank !== rank) continue;
      for (let at = 0; at < lane.count; at++) if (numbers?.has(lane.name[at]) || (run.rank === rank && lane.node[at] === node)) items.push(lane.bar(at));
      for (let at = 0; at < ops.count; at++) if (numbers?.has(ops.name[at]) && !run.often[ops.name[at]]) items.push(lane.op(at));
    }
    return items.sort((a, b) => a.start - b.start);
  }

  choose(name, zoom) {
    const found = name ? this.find(name) : null, [first] = found ? this.items(found) : [];
    if (!name) this.search.value = "";
    this.hits = [];
    this.view.selected = null;
    this.tell();
    this.mark(found, name, first?.short ?? "");
    this.chain.replaceChildren();
    if (zoom && first) this.zoomTo(first);
  }

  // what is found stands out on the timeline
  mark(found, name, title) {
    const { view, panel } = this;
    view.chosen = found;
    view.redraw();
    panel.hidden = !name;
    panel.children[0].textContent = title;
    panel.children[1].textContent = `${whole.format(found?.count || 1)} on this timeline`;
  }

  zoomTo(item) {
    if (item.isBar) this.view.focusOn(item);
    else {
      this.view.show(item.start - item.time / 4, item.end + item.time / 4);
      this.view.reveal(item.lane);
    }
    document.getElementById("run").scrollIntoView();
  }

  // By a part of names

  seek(text) {
    const numbers = (run) => new Set([...run.full.keys()].filter((number) => run.full[number].toLowerCase().includes(text)));
    const names = new Map(text ? this.view.runs.map((run) => [run, numbers(run)]).filter(([, { size }]) => size) : []), found = text ? { names } : null;
    Object.assign(this, { hits: found ? this.items(found) : [], hit: -1 });
    Object.assign(this.view, { selected: null, chosen: found });
    this.panel.hidden = true;
    this.tell();
    this.view.redraw();
  }

  next(by) {
    if (!this.hits.length) return;
    this.hit = (this.hit + by + this.hits.length + (this.hit < 0 && by < 0)) % this.hits.length;
    const item = this.hits[this.hit], { chosen } = this.view;
    if (item.isBar) this.select(item);
    else this.view.selected = null;
    this.panel.hidden = !item.isBar;
    // all that was found still stands out
    this.view.chosen = chosen;
    this.zoomTo(item);
    this.tell();
  }

  tell() {
    const at = this.hit < 0 ? "" : `${whole.format(this.hit + 1)} of `;
    this.view.element.querySelector(".hits").textContent = this.search.value ? `${at}${whole.format(this.hits.length)} found` : "";
  }

  // By a bar

  select(bar, move) {
    const { view } = this;
    this.mark(this.find(bar.full), bar.full, bar.short);
    view.selected = bar;
    // the one that ended last comes first, as that released it; those that wait for it by their start
    const before = this.linked(bar, -1).sort(([a], [b]) => b.end - a.end), after = this.linked(bar, 1).sort(([a], [b]) => a.start - b.start);
    this.chain.replaceChildren(...this.listed("Released by", before, (other) => `${duration(bar.start - other.end, fourDigits)} before`),
      ...this.listed("Releases", after, (other) => `${duration(other.start - bar.end, fourDigits)} later`));
    if (move && (bar.end < view.from || bar.start > view.to)) view.focusOn(bar);
    else view.reveal(bar.lane);
  }

  // the bars that it waits for (-1) or that wait for it (1), each with the reason: by an arrow, or next to it on its lane
  linked({ run, lane, at, number }, way) {
    const { source, target, reason } = run.arrows, [own, other] = way > 0 ? [source, target] : [target, source], found = [];
    own.forEach((end, index) => { if (end === number) found.push([run.bar(other[index]), this.view.meta.reasons[reason[index]]]); });
    if (lane.kind[at + way] !== undefined) found.push([lane.bar(at + way), / stream /.test(lane.label) ? "stream order" : "program order"]);
    return found;
  }

  listed(title, bars, distance) {
    if (!bars.length) return [];
    const buttons = bars.slice(0, LISTED).map(([bar, why]) => {
      const textContent = `${bar.short} · ${why}, ${bar.lane.label.replace(/^rank \d+ · /, "")}, ${distance(bar)}`;
      return made("button", { textContent, onclick: () => this.select(bar, true) });
    });
    return [made("div", {}, made("span", `${title} `), ...buttons, bars.length > LISTED ? `and ${whole.format(bars.length - LISTED)} more` : "")];
  }
}
