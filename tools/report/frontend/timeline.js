// The timeline: an overview of the whole run, and below it a part of it, which mouse and keys move

const NARROWEST = 20; // ns
const AT_REST = new Set(["delay", "waiting", "idle"]);

class TimelineView extends TimelineDrawing {
  constructor(element, meta, runs) {
    super();
    Object.assign(this, { element, meta, runs, length: meta.length, chosen: null, selected: null });
    this.lanes = runs.flatMap((run) => run.lanes);
    const find = (name) => element.querySelector(name);
    [this.overview, this.axis, this.scroller, this.labels, this.range] = [".overview", ".axis", ".lanes", ".labels", ".range"].map(find);
    this.drawing = this.scroller.querySelector("canvas");
    this.arrange();
    this.high = Math.max(64, Math.min(5 * this.lanes.length, 120));
    this.looks = meta.looks.map((look) => STACKED.indexOf(look));
    const looks = new Set(this.lanes.flatMap((lane) => [...new Set(lane.kind), ...(lane.rest?.spent.keys() ?? [])]).map((kind) => meta.looks[kind >> 1]));
    const legend = (textContent, colour, className = "") => made("span", { textContent, className, style: `--of: var(--${colour})` });
    find(".legend").append(...STACKED.filter((look) => looks.has(look)).map((look) => legend(look, look)), legend("critical path", "mark", "line"));
    element.hidden = false;
    this.showAll();
    this.listen(find);
  }

  // Lanes one below another

  // those of several ranks below a heading
  arrange() {
    const several = this.runs.length > 1;
    let top = 0;
    this.lines = [];
    const add = (line, high) => { this.lines.push({ ...line, top, high }); top += high; };
    for (const run of this.runs) {
      if (several) add({ run }, HEADING);
      for (const lane of run.lanes) add({ run, lane }, LABEL + lane.rows * BAR + FOOT);
    }
    this.labels.replaceChildren(...this.lines.map(({ run, lane, high }) => {
      const prefix = `rank ${run.rank}`, style = `height: ${high}px`;
      return lane ? made("span", { style }, made("i", several ? lane.label.replace(`${prefix} · `, "") : lane.label)) : made("b", { style, textContent: prefix });
    }));
    this.labels.style.height = `${top}px`;
  }

  // Moving about

  showAll() { this.show(0, this.length); }

  show(from, to) {
    const length = Math.min(Math.max(to - from, NARROWEST), this.length), middle = (from + to) / 2;
    this.from = Math.max(0, Math.min(middle - length / 2, this.length - length));
    this.to = this.from + length;
    this.redraw();
  }

  zoom(factor, around = 0.5) {
    const length = Math.min(Math.max((this.to - this.from) * factor, NARROWEST), this.length), fixed = this.from + around * (this.to - this.from);
    this.show(fixed - around * length, fixed + (1 - around) * length);
  }

  pan(part) {
    const by = part * (this.to - this.from);
    this.show(this.from + by, this.to + by);
  }

  reveal(lane) {
    const { top, high } = this.lines.find((line) => line.lane === lane), { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop || top + high > scrollTop + clientHeight) this.scroller.scrollTop = top - clientHeight / 2;
  }

  // marked steps of the first rank that has any: each lasts until the next one begins
  get steps() {
    for (const { run, ops } of this.lanes) {
      const marks = [...ops.name.keys()].filter((row) => /^ProfilerStep#\d+$/.test(run.full[ops.name[row]]));
      if (marks.length) return marks.map((row, index) => [ops.start[row], index + 1 < marks.length ? ops.start[marks[index + 1]] : ops.end[row]]);
    }
    return [];
  }

  showMedianStep() {
    const steps = this.steps.sort((a, b) => a[1] - a[0] - (b[1] - b[0]));
    if (steps.length) this.show(...steps[(steps.length - 1) >> 1]);
  }

  listen(find) {
    const nearer = () => this.zoom(0.5), farther = () => this.zoom(2), left = () => this.pan(-0.2), right = () => this.pan(0.2), all = () => this.showAll(), step = () => this.showMedianStep();
    const keys = {
      w: nearer, "+": nearer, "=": nearer, s: farther, "-": farther, a: left, ArrowLeft: left, d: right, ArrowRight: right, 0: all, Home: all, m: step,
      "/": () => find(".find").focus(), f: () => this.selected && this.focusOn(this.selected, true), Escape: () => timeline.choose(""),
    };
    const buttons = { in: nearer, out: farther, all, step };
    for (const [name, act] of Object.entries(buttons)) find(`.${name}`).onclick = act;
    find(".step").hidden = !this.steps.length;
    // while the pointer is on the timeline or it has the focus, and nothing is typed elsewhere
    addEventListener("keydown", (event) => {
      const act = keys[event.key] ?? keys[event.key.toLowerCase()], isHere = this.element.matches(":hover") || this.scroller.matches(":focus");
      if (event.ctrlKey || event.metaKey || event.altKey || !act || !isHere || event.target.matches("input")) return;
      event.preventDefault();
      act();
    });
    this.scroller.onscroll = () => this.redraw();
    this.drawing.ondblclick = all;
    this.drawing.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.dragging();
    this.overview.onpointerdown = this.overview.onpointermove = ({ type, pointerId, offsetX, buttons: pressed }) => {
      const middle = (offsetX / this.width) * this.length, half = (this.to - this.from) / 2;
      if (type === "pointerdown") this.overview.setPointerCapture(pointerId);
      if (pressed) this.show(middle - half, middle + half);
    };
    new ResizeObserver(() => this.redraw()).observe(this.scroller);
    // paper shows the whole run
    addEventListener("beforeprint", () => { this.showAll(); this.draw(); });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.colours = null; this.redraw(); });
  }

  // the wheel alone scrolls the page
  wheel(event) {
    const { ctrlKey, metaKey, shiftKey, deltaX, deltaY, offsetX } = event;
    const sideways = shiftKey ? deltaY || deltaX : Math.abs(deltaX) > Math.abs(deltaY) ? deltaX : 0;
    if (!ctrlKey && !metaKey && !sideways) return;
    event.preventDefault();
    if (ctrlKey || metaKey) this.zoom(Math.exp(Math.max(-60, Math.min(60, deltaY)) * 0.005), offsetX / this.width);
    else this.pan(sideways / this.width);
  }

  // what stayed in its place was a click
  dragging() {
    const { drawing } = this;
    let last = null, moved = 0;
    drawing.onpointerdown = ({ pointerId, offsetX }) => {
      [last, moved] = [offsetX, 0];
      drawing.setPointerCapture(pointerId);
    };
    drawing.onpointermove = (event) => {
      if (last === null) return this.hover(event);
      moved += Math.abs(event.offsetX - last);
      if (moved > 3) this.pan((last - event.offsetX) / this.width);
      last = event.offsetX;
      return tell(null, event);
    };
    drawing.onpointerup = (event) => {
      const { item } = (moved <= 3 && this.at(event.offsetX, event.offsetY)) || {};
      last = null;
      if (item?.isBar) timeline.select(item);
      else if (item) timeline.choose(item.full);
    };
    drawing.onpointercancel = () => { last = null; };
    drawing.onpointerleave = (event) => tell(null, event);
  }

  // a bar and what is beside it; if as little is shown already, the bar may fill the view
  focusOn({ lane, start, time }, mayFill = false) {
    const around = Math.max(4 * time, 5000), half = !mayFill || this.to - this.from > 2 * around ? around : Math.max(0.55 * time, 500);
    this.show(start + time / 2 - half, start + time / 2 + half);
    this.reveal(lane);
  }

  // Telling

  say() {
    const seen = [...this.seen.values()], sums = seen.filter(({ fine }) => !fine).map(({ level }) => level.width), rests = seen.some(({ fine, level }) => fine && level);
    const how = sums.length ? `each column sums up ${duration(Math.max(...sums), fourDigits)}` : "bar by bar";
    this.range.textContent = `${stretch(this.from, this.to)} of ${duration(this.length, fourDigits)}: ${how}${rests ? "; pale blocks sum up what is not drawn one by one" : ""}`;
    Object.assign(this.element.dataset, { from: this.from / 1000, to: this.to / 1000, columns: sums.length });
  }

  // the bar or op at a place, or the sums there
  at(x, y) {
    const below = y + this.scroller.scrollTop, lane = this.lines.find(({ top, high }) => below >= top && below < top + high)?.lane;
    const seen = this.seen.get(lane), time = this.time(x), near = 2 / this.scale;
    if (!seen) return null;
    const deep = Math.max(0, Math.min(lane.rows - 1, Math.floor((y - seen.y - LABEL) / BAR)));
    if (seen.fine) {
      const [first, last] = lane.within(time - near, time + near);
      let best = -1, nearest = Infinity;
      for (let row = first; row < last; row++) {
        const away = Math.max(lane.start[row] - time, time - lane.end[row], 0);
        if (lane.row[row] === deep && away <= near && away <= nearest) [best, nearest] = [row, away];
      }
      if (best >= 0) return { item: lane.bar(best) };
    }
    const [from, to] = lane.ops.within(time, time);
    for (let row = from; row < to; row++) if (lane.ops.row[row] === deep && lane.ops.end[row] >= time) return { item: lane.op(row) };
    const { level, fine } = seen, index = level?.index(time);
    return level && [...level.spent.values()].some((times) => times[index]) ? { lane, level, index, rest: fine } : null;
  }

  hover(event) {
    const found = this.at(event.offsetX, event.offsetY);
    tell(found && (found.item ? this.ofItem(found.item) : this.ofSums(found)), event);
  }

  ofItem({ isBar, run, lane, at, short, kind, start, time }) {
    const told = [["name", short], ["lane", lane.label], ["kind", isBar ? this.meta.looks[kind >> 1] : "op, with what it called"], ["start", duration(start)], ["time", duration(time)]];
    return isBar ? [...told, ["critical", kind & 1 ? "yes" : "no"], ["node", `${run.rank}/${lane.node[at]}`]] : told;
  }

  ofSums({ lane, level, index, rest }) {
    const shares = new Map(), begin = index * level.width;
    for (const [kind, times] of level.spent) {
      const look = this.meta.looks[kind >> 1];
      if (times[index]) shares.set(look, (shares.get(look) ?? 0) + times[index] / level.width);
    }
    const busy = [...shares].reduce((sum, [look, share]) => sum + (AT_REST.has(look) ? 0 : share), 0);
    return [
      ["sum of", stretch(begin, Math.min(begin + level.width, this.length))], ["lane", lane.label], [rest ? "not drawn one by one" : "begin in it", whole.format(level.begun[index])],
      ["busy", percent(busy)], ...[...shares].sort((a, b) => b[1] - a[1]).map(([look, share]) => [look, percent(share)]),
    ];
  }
}
