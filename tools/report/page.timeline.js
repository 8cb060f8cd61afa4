"use strict";

// The timeline: an overview of the whole run, and below it a part of it, bar by bar where these can be seen, in columns of sums where not

const LANE = 36, LABEL = 15, BAR = 15, RAIL = 3, AXIS = 20, THIN = 6; // px
const THINNEST = 0.7, COLUMN = 1.5, BLOCK = 6, LETTER = 6.3, NARROWEST = 20; // px; ns for the last
const MOST_BARS = 3000, MOST_STEPS = 2000, MOST_LAUNCHES = 40;
const STACKED = ["computation", "communication", "memory", "host", "unrecorded", "metadata", "delay", "waiting", "idle"];
const AT_REST = new Set(["delay", "waiting", "idle"]), PALE = new Set(["waiting", "idle", "unrecorded", "metadata"]);
const thousandths = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });
const micro = (ns) => thousandths.format(ns / 1000);
// from and to as far as they differ
const stretch = (from, to) => (to - from > 1e5 ? [from, to].map((time) => whole.format(time / 1000)) : [from, to].map(micro)).join(" to ");
const percent = (part) => `${tenths.format(100 * part)} %`;

function canvas2d(element, width, height) {
  const scale = devicePixelRatio || 1, [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (element.width !== wide || element.height !== high) Object.assign(element, { width: wide, height: high });
  Object.assign(element.style, { width: `${width}px`, height: `${height}px` });
  const context = element.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

class TimelineView {
  constructor(element, meta, runs) {
    Object.assign(this, { element, meta, runs, length: meta.length, chosen: null, hovered: null });
    this.lanes = runs.flatMap((run) => run.lanes);
    const find = (name) => element.querySelector(name);
    [this.overview, this.axis, this.scroller, this.labels, this.range] = [".overview", ".axis", ".lanes", ".labels", ".range"].map(find);
    this.drawing = this.scroller.querySelector("canvas");
    this.tip = document.getElementById("tip");
    this.labels.append(...this.lanes.map((lane) => Object.assign(document.createElement("span"), { textContent: lane.label })));
    this.labels.style.height = `${this.lanes.length * LANE}px`;
    this.high = Math.max(64, Math.min(5 * this.lanes.length, 120));
    this.looks = meta.looks.map((look) => STACKED.indexOf(look));
    this.legend(find(".legend"));
    element.hidden = false;
    this.showAll();
    this.listen(find);
  }

  legend(element) {
    const looks = new Set(this.lanes.flatMap((lane) => [...lane.kind.reduce((seen, kind) => seen.add(kind >> 1), new Set()), ...[...(lane.rest?.spent.keys() ?? [])].map((kind) => kind >> 1)]));
    const entry = (label, variable) => {
      const line = document.createElement("span");
      line.textContent = label;
      line.style.setProperty("--of", `var(--${variable})`);
      return line;
    };
    element.append(...STACKED.filter((look) => looks.has(this.meta.looks.indexOf(look))).map((look) => entry(look, look)), Object.assign(entry("critical path", "mark"), { className: "line" }));
  }

  // Moving about

  showAll() {
    this.show(0, this.length);
  }

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

  time(x) {
    return this.from + (x / this.width) * (this.to - this.from);
  }

  x(time) {
    return ((time - this.from) / (this.to - this.from)) * this.width;
  }

  reveal(lane) {
    this.scroller.scrollTop = this.lanes.indexOf(lane) * LANE - this.scroller.clientHeight / 2;
  }

  listen(find) {
    const keys = { ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.showAll(), w: () => this.zoom(0.5), s: () => this.zoom(2), a: () => this.pan(-0.2), d: () => this.pan(0.2), Home: () => this.showAll() };
    this.scroller.onkeydown = (event) => {
      const act = keys[event.key] ?? keys[event.key.toLowerCase()];
      if (event.ctrlKey || event.metaKey || event.altKey || !act) return;
      event.preventDefault();
      act();
    };
    find(".in").onclick = () => this.zoom(0.5);
    find(".out").onclick = () => this.zoom(2);
    find(".all").onclick = () => this.showAll();
    find(".path").onclick = () => this.show(...this.meta.window);
    this.scroller.onscroll = () => this.redraw();
    this.drawing.ondblclick = () => this.showAll();
    this.drawing.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.dragging();
    const move = ({ offsetX, buttons }) => {
      const middle = (offsetX / this.width) * this.length, half = (this.to - this.from) / 2;
      if (buttons) this.show(middle - half, middle + half);
    };
    this.overview.onpointerdown = (event) => { this.overview.setPointerCapture(event.pointerId); move(event); };
    this.overview.onpointermove = move;
    new ResizeObserver(() => this.redraw()).observe(this.scroller);
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

  // one finger or the mouse moves, two fingers zoom; what stayed in its place was a click
  dragging() {
    const down = new Map();
    let moved = 0;
    const spread = () => { const [a, b] = [...down.values()]; return Math.max(Math.abs(a - b), 1); };
    this.drawing.onpointerdown = ({ pointerId, offsetX }) => {
      if (!down.size) moved = 0;
      down.set(pointerId, offsetX);
      this.drawing.setPointerCapture(pointerId);
    };
    this.drawing.onpointermove = (event) => {
      const { pointerId, offsetX } = event, last = down.get(pointerId);
      if (last === undefined) return this.hover(event);
      const before = down.size > 1 ? spread() : 0;
      down.set(pointerId, offsetX);
      moved += Math.abs(offsetX - last);
      if (before) this.zoom(before / spread(), [...down.values()].reduce((sum, x) => sum + x, 0) / down.size / this.width);
      else if (moved > 3) this.pan((last - offsetX) / this.width);
      return this.hideTip();
    };
    this.drawing.onpointerup = (event) => {
      const { bar } = (moved <= 3 && this.at(event.offsetX, event.offsetY)) || {};
      if (down.delete(event.pointerId) && bar) timeline.choose(bar.run.full[bar.lane.name[bar.row]]);
    };
    this.drawing.onpointercancel = ({ pointerId }) => down.delete(pointerId);
    this.drawing.onpointerleave = () => this.hideTip();
  }

  // Drawing

  redraw() {
    this.frame ??= requestAnimationFrame(() => { this.frame = null; this.draw(); });
  }

  colour(look) {
    if (!this.colours) {
      const style = getComputedStyle(document.body), value = (name) => style.getPropertyValue(`--${name}`).trim();
      this.colours = Object.fromEntries([...STACKED, "mark", "ink", "muted", "line", "paper"].map((name) => [name, value(name)]));
    }
    return this.colours[look];
  }

  draw() {
    this.width = this.scroller.clientWidth;
    this.scale = this.width / (this.to - this.from);
    const height = this.scroller.clientHeight, top = this.scroller.scrollTop;
    const context = (this.context = canvas2d(this.drawing, this.width, height));
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    this.drawAxis();
    this.seen = new Map();
    this.lanes.forEach((lane, number) => {
      const y = number * LANE - top;
      if (y > -LANE && y < height) this.drawLane(lane, y);
    });
    this.drawArrows();
    this.drawOverview();
    this.say();
  }

  // where sums are as wide as blocks the bars themselves are drawn, over blocks for those that are only summed up
  drawLane(lane, y) {
    const [first, last] = lane.within(this.from, this.to), finest = lane.levels[0];
    const fine = finest.width * this.scale >= BLOCK || (!lane.rest && last - first <= MOST_BARS);
    const level = fine ? lane.rest : lane.levels.find(({ width }) => width * this.scale >= COLUMN) ?? lane.levels.at(-1);
    this.seen.set(lane, { y, fine, level, first, last });
    this.context.fillStyle = this.colour("line");
    this.context.fillRect(0, y + LABEL + BAR, this.width, 0.5);
    if (level) this.drawSums(level, y + LABEL, (fine ? 0.55 : 0.85) * (this.chosen ? 0.25 : 1), fine ? lane.free : null);
    if (level && fine) this.drawCounts(lane, level, y + LABEL);
    this.drawBars(lane, y + LABEL, first, last, fine);
  }

  // as high as they fill the stretches, or what bars leave free of them
  drawSums(level, y, alpha, free) {
    const { context } = this, from = level.index(this.from), to = level.index(this.to);
    const low = new Float32Array(to - from + 1), path = new Float32Array(to - from + 1), px = level.width * this.scale;
    const rows = [...level.spent].map(([kind, times]) => [this.looks[kind >> 1], kind & 1, times]).sort((a, b) => a[0] - b[0]);
    context.globalAlpha = alpha;
    for (const [look, critical, times] of rows) {
      context.fillStyle = this.colour(STACKED[look]);
      for (let index = from; index <= to; index++) {
        if (!times[index]) continue;
        const share = times[index] / (free ? Math.max(free[index], times[index]) : level.width), high = Math.max(Math.min(share, 1 - low[index - from]) * BAR, 0.5);
        const x = Math.round(this.x(index * level.width)), end = Math.round(this.x((index + 1) * level.width));
        context.fillRect(x, y + BAR - low[index - from] * BAR - high, end - x, high);
        low[index - from] += share;
        if (critical) path[index - from] += share;
      }
    }
    context.fillStyle = this.colour("mark");
    path.forEach((share, index) => {
      context.globalAlpha = alpha * Math.max(0.25, Math.min(share, 1));
      const x = Math.round(this.x((from + index) * level.width));
      if (share) context.fillRect(x, y + BAR + 2, Math.round(x + px) - x, RAIL);
    });
    context.globalAlpha = 1;
  }

  // in blocks that no bar covers
  drawCounts(lane, level, y) {
    const { begun, width } = level, px = width * this.scale;
    this.context.fillStyle = this.colour("ink");
    for (let index = level.index(this.from); px > 40 && index <= level.index(this.to); index++) {
      const [first, last] = lane.within(index * width, (index + 1) * width), text = `${whole.format(begun[index])} more`;
      const left = Math.max(this.x(index * width), 0), right = Math.min(this.x((index + 1) * width), this.width);
      if (begun[index] && first === last && (text.length + 1) * LETTER < right - left) this.context.fillText(text, left + 3, y + BAR / 2);
    }
  }

  // of what is too dense only what was chosen
  drawBars(lane, y, first, last, all) {
    const { context, chosen } = this, name = chosen && lane.run.number.get(chosen.name), { rank } = lane.run;
    let drawnTo = -1, drawnAs = "";
    for (let row = first; row < last; row++) {
      const sought = !chosen || lane.name[row] === name || (rank === chosen.rank && lane.node[row] === chosen.node);
      if (!all && !(chosen && sought)) continue;
      const look = this.meta.looks[lane.kind[row] >> 1], x = Math.max(this.x(lane.start[row]), -1), end = Math.min(this.x(lane.end[row]), this.width + 1);
      if (end < drawnTo && look === drawnAs && sought) continue;
      const width = Math.max(end - x, chosen && sought ? 2 : THINNEST);
      context.globalAlpha = sought ? 1 : 0.15;
      context.fillStyle = this.colour(look);
      context.fillRect(x, y, width > 3 ? width - 0.5 : width, BAR);
      if (lane.kind[row] & 1) {
        context.fillStyle = this.colour("mark");
        context.fillRect(x, y + BAR + 2, width, RAIL);
      }
      if (width > 7 * LETTER) this.drawName(lane.run.short[lane.name[row]], look, x, y, width);
      [drawnTo, drawnAs] = [x + width, look];
    }
    context.globalAlpha = 1;
  }

  drawName(name, look, x, y, width) {
    const { context } = this, fits = (text) => context.measureText(text).width <= width - 6;
    let text = name, letters = Math.min(name.length, Math.ceil((2 * width) / LETTER));
    while (!fits(text)) text = `${name.slice(0, --letters)}…`;
    context.fillStyle = PALE.has(look) ? this.colour("muted") : "#fff";
    context.fillText(text, x + 3, y + BAR / 2 + 0.5);
  }

  // steps of the critical path between lanes; launches of what is hovered, and all that begin and end in view where they are few
  drawArrows() {
    const { context } = this;
    for (const run of this.runs) {
      const steps = [], launches = [], { source, target, step } = run.arrows;
      const laneOf = run.laneOfRow ??= run.lanes.flatMap((lane) => Array(lane.count).fill(lane));
      for (let index = 0; index < source.length; index++) {
        const [one, other] = [laneOf[source[index]], laneOf[target[index]]];
        const [begin, end] = [one.end[source[index] - one.first], other.start[target[index] - other.first]];
        if (Math.min(begin, end) > this.to || Math.max(begin, end) < this.from) continue;
        const [above, below] = [this.seen.get(one), this.seen.get(other)];
        if (above?.fine && below?.fine) (step[index] ? steps : launches).push({ index, begin, end, above, below });
      }
      context.strokeStyle = this.colour("mark");
      context.lineWidth = 1.5;
      if (steps.length <= MOST_STEPS) for (const { begin, end, above, below } of steps) this.line(this.x(begin), above.y + LABEL + BAR + 3.5, this.x(end), below.y + LABEL + BAR + 3.5);
      context.strokeStyle = this.colour("ink");
      context.lineWidth = 0.8;
      for (const { index, begin, end, above, below } of launches) {
        const own = this.hovered?.run === run && [source[index], target[index]].includes(this.hovered.lane.first + this.hovered.row);
        if (!own && (launches.length > MOST_LAUNCHES || begin < this.from || end > this.to)) continue;
        context.globalAlpha = own ? 1 : 0.3;
        const down = above.y < below.y;
        this.line(this.x(begin), above.y + LABEL + (down ? BAR : 0), this.x(end), below.y + LABEL + (down ? 0 : BAR));
      }
      context.globalAlpha = 1;
    }
  }

  line(x, y, toX, toY) {
    this.context.beginPath();
    this.context.moveTo(x, y);
    this.context.lineTo(toX, toY);
    this.context.stroke();
  }

  drawAxis() {
    const context = canvas2d(this.axis, this.width, AXIS), rough = 110 / this.scale / 1000, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((digit) => digit * power).find((one) => one >= rough);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = this.colour("muted");
    this.context.fillStyle = this.colour("line");
    for (let number = Math.ceil(this.from / 1000 / step); number * step <= this.to / 1000; number++) {
      const x = this.x(number * step * 1000), text = thousandths.format(number * step), half = context.measureText(text).width / 2;
      context.fillRect(x, AXIS - 5, 1, 5);
      if (x >= half && x + half <= this.width) context.fillText(text, x - half, AXIS - 8);
      this.context.fillRect(x, 0, 0.5, this.scroller.clientHeight);
    }
  }

  // all lanes in miniature, drawn once for each width and colour, and the part that is shown below
  drawOverview() {
    const key = `${this.width} ${this.colour("paper")} ${devicePixelRatio}`, context = canvas2d(this.overview, this.width, this.high);
    if (key !== this.miniatureOf) {
      this.miniatureOf = key;
      this.miniature = document.createElement("canvas");
      const drawing = canvas2d(this.miniature, this.width, this.high), high = this.high / this.lanes.length;
      this.lanes.forEach((lane, number) => this.drawMiniature(drawing, lane, number * high, high));
    }
    context.drawImage(this.miniature, 0, 0, this.width, this.high);
    const from = (this.from / this.length) * this.width, to = (this.to / this.length) * this.width;
    context.fillStyle = this.colour("paper");
    context.globalAlpha = 0.6;
    context.fillRect(0, 0, from, this.high);
    context.fillRect(to, 0, this.width - to, this.high);
    context.globalAlpha = 1;
    context.strokeStyle = this.colour("mark");
    context.lineWidth = 1.5;
    context.strokeRect(Math.min(from, this.width - 3) + 0.75, 0.75, Math.max(to - from - 1.5, 1.5), this.high - 1.5);
  }

  drawMiniature(context, lane, y, high) {
    const px = (width) => (width / this.length) * this.width, gap = high > 3 ? 1 : 0;
    const level = lane.levels.find(({ width }) => px(width) >= COLUMN) ?? lane.levels.at(-1);
    const low = new Float32Array(level.count), left = (index) => Math.round(px(index * level.width));
    for (const [kind, times] of [...level.spent].sort((a, b) => this.looks[a[0] >> 1] - this.looks[b[0] >> 1])) {
      context.fillStyle = this.colour(this.meta.looks[kind >> 1]);
      times.forEach((time, index) => {
        const share = Math.min(time / level.width, 1 - low[index]), tall = high < THIN ? 1 : share;
        context.globalAlpha = high < THIN ? share : 1;
        if (share > 0) context.fillRect(left(index), y + (high - gap) * (1 - tall - (high < THIN ? 0 : low[index])), left(index + 1) - left(index), (high - gap) * tall);
        low[index] += share;
      });
    }
    context.globalAlpha = 1;
  }

  // Telling

  say() {
    const sums = [...this.seen.values()].filter(({ fine }) => !fine).map(({ level }) => level.width), rests = [...this.seen.values()].some(({ fine, level }) => fine && level);
    const how = sums.length ? `each column sums up ${formats.number(Math.max(...sums) / 1000)} µs` : "bar by bar";
    this.range.textContent = `${stretch(this.from, this.to)} µs of ${whole.format(this.length / 1000)}: ${how}${rests ? "; pale blocks sum up what is not drawn one by one" : ""}`;
    Object.assign(this.element.dataset, { from: this.from / 1000, to: this.to / 1000, columns: sums.length });
  }

  // the bar at a place, or the sums there
  at(x, y) {
    const lane = this.lanes[Math.floor((y + this.scroller.scrollTop) / LANE)], seen = this.seen.get(lane), time = this.time(x), near = 2 / this.scale;
    if (!seen) return null;
    if (seen.fine) {
      const [first, last] = lane.within(time - near, time + near);
      let best = -1, nearest = Infinity;
      for (let row = first; row < last; row++) {
        const away = Math.max(lane.start[row] - time, time - lane.end[row], 0);
        if (away <= near && away <= nearest) [best, nearest] = [row, away];
      }
      if (best >= 0) return { bar: { run: lane.run, lane, row: best } };
    }
    const index = seen.level?.index(time);
    return seen.level && [...seen.level.spent.values()].some((times) => times[index]) ? { lane, level: seen.level, index, rest: seen.fine } : null;
  }

  hover({ offsetX, offsetY, clientX, clientY }) {
    const found = this.at(offsetX, offsetY), bar = found?.bar;
    if (bar?.lane !== this.hovered?.lane || bar?.row !== this.hovered?.row) {
      this.hovered = bar;
      this.redraw();
    }
    if (!found) return this.hideTip();
    const table = document.createElement("table");
    for (const [key, value] of bar ? this.ofBar(bar) : this.ofSums(found)) {
      const row = table.insertRow();
      Object.assign(row.insertCell(), { className: "key", textContent: key });
      row.insertCell().textContent = value;
    }
    this.tip.replaceChildren(table);
    this.tip.classList.add("visible");
    const { offsetWidth, offsetHeight } = this.tip, left = clientX + 14 + offsetWidth < innerWidth ? clientX + 14 : clientX - 14 - offsetWidth;
    Object.assign(this.tip.style, { left: `${Math.max(4, left)}px`, top: `${clientY + 14 + offsetHeight < innerHeight ? clientY + 14 : clientY - 14 - offsetHeight}px` });
    return undefined;
  }

  hideTip() {
    this.tip.classList.remove("visible");
  }

  ofBar({ run, lane, row }) {
    const kind = lane.kind[row];
    return [
      ["name", run.short[lane.name[row]]], ["lane", lane.label], ["kind", this.meta.looks[kind >> 1]], ["start [µs]", micro(lane.start[row])],
      ["time [µs]", micro(lane.end[row] - lane.start[row])], ["critical", kind & 1 ? "yes" : "no"], ["node", `${run.rank}/${lane.node[row]}`],
    ];
  }

  ofSums({ lane, level, index, rest }) {
    const shares = new Map();
    for (const [kind, times] of level.spent) {
      const look = this.meta.looks[kind >> 1];
      if (times[index]) shares.set(look, (shares.get(look) ?? 0) + times[index] / level.width);
    }
    const busy = [...shares].reduce((sum, [look, share]) => sum + (AT_REST.has(look) ? 0 : share), 0);
    const begin = index * level.width;
    return [
      ["sum of", `${stretch(begin, Math.min(begin + level.width, this.length))} µs`], ["lane", lane.label], [rest ? "not drawn one by one" : "begin in it", whole.format(level.begun[index])],
      ["busy", percent(busy)], ...[...shares].sort((a, b) => b[1] - a[1]).map(([look, share]) => [look, percent(share)]),
    ];
  }
}
