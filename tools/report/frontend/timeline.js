// The timeline: an overview of the whole run, and below it a part of it, bar by bar where these can be seen, in columns of sums where not

const LABEL = 15, BAR = 15, FOOT = 6, RAIL = 3, AXIS = 20, THIN = 6, HEADING = 20, STRIP = 24, OPENED = 720; // px
const THINNEST = 0.7, COLUMN = 1.5, BLOCK = 6, LETTER = 6.3, NARROWEST = 20; // px; ns for the last
const MOST_BARS = 3000, MOST_STEPS = 2000, MOST_ARROWS = 40;
const STACKED = ["computation", "communication", "memory", "host", "unrecorded", "metadata", "delay", "waiting", "idle"];
const AT_REST = new Set(["delay", "waiting", "idle"]), PALE = new Set(["waiting", "idle", "unrecorded", "metadata"]);

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
    Object.assign(this, { element, meta, runs, length: meta.length, chosen: null, selected: null, hovered: null });
    this.lanes = runs.flatMap((run) => run.lanes);
    const find = (name) => element.querySelector(name);
    [this.overview, this.axis, this.scroller, this.labels, this.range] = [".overview", ".axis", ".lanes", ".labels", ".range"].map(find);
    this.drawing = this.scroller.querySelector("canvas");
    this.tip = document.getElementById("tip");
    this.foldLater();
    this.arrange();
    this.high = Math.max(64, Math.min(5 * this.lanes.length, 120));
    this.looks = meta.looks.map((look) => STACKED.indexOf(look));
    this.legend(find(".legend"));
    element.hidden = false;
    this.showAll();
    this.listen(find);
  }

  legend(element) {
    const looks = new Set(this.lanes.flatMap((lane) => [...lane.kind.reduce((seen, kind) => seen.add(kind >> 1), new Set()), ...[...(lane.rest?.spent.keys() ?? [])].map((kind) => kind >> 1)]));
    element.append(...STACKED.filter((look) => looks.has(this.meta.looks.indexOf(look))).map((look) => made("span", { textContent: look, style: `--of: var(--${look})` })));
    element.append(made("span", { textContent: "critical path", className: "line", style: "--of: var(--mark)" }));
  }

  // Lanes one below another

  // ranks are open as far as there is place without scrolling far, those with most of the critical path first
  foldLater() {
    let high = 0;
    for (const [index, run] of this.runs.toSorted((a, b) => b.critical - a.critical).entries()) {
      high += run.lanes.reduce((sum, lane) => sum + LABEL + lane.rows * BAR + FOOT, HEADING);
      run.folded = high > OPENED && index > 0;
    }
  }

  // those of several ranks below a heading, beside which a folded rank is drawn in miniature
  arrange() {
    const several = this.runs.length > 1, lines = [];
    let top = 0;
    const add = (line, high) => { lines.push({ ...line, top, high }); top += high; };
    for (const run of this.runs) {
      if (several) add({ run }, HEADING + (run.folded ? STRIP : 0));
      for (const lane of run.folded ? [] : run.lanes) add({ run, lane }, LABEL + lane.rows * BAR + FOOT);
    }
    this.lines = lines;
    this.labels.replaceChildren(...lines.map((line) => this.labelOf(line, several)));
    this.labels.style.height = `${top}px`;
    if (this.from !== undefined) this.redraw();
  }

  labelOf({ run, lane, high }, several) {
    const prefix = `rank ${run.rank}`, style = `height: ${high}px`;
    if (lane) return made("span", { style }, made("i", several ? lane.label.replace(`${prefix} · `, "") : lane.label));
    const onclick = () => {
      run.folded = !run.folded;
      this.arrange();
      this.labels.children[this.lines.findIndex((line) => line.run === run)].focus();
    };
    return made("button", { style, onclick, textContent: `${run.folded ? "▸" : "▾"} ${prefix}`, ariaExpanded: String(!run.folded) });
  }

  lineAt(y) {
    return this.lines.find(({ top, high }) => y >= top && y < top + high);
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
    if (lane.run.folded) {
      lane.run.folded = false;
      this.arrange();
    }
    const { top, high } = this.lines.find((line) => line.lane === lane), { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop || top + high > scrollTop + clientHeight) this.scroller.scrollTop = top - clientHeight / 2;
  }

  // marked steps of the first rank that has any: each lasts until the next one begins
  get steps() {
    for (const { run, ops } of this.lanes) {
      const marks = [...ops.name.keys()].filter((row) => /^ProfilerStep#\d+$/.test(run.full[ops.name[row]]));
      if (marks.length) return marks.map((row, index) => ({ from: ops.start[row], to: index + 1 < marks.length ? ops.start[marks[index + 1]] : ops.end[row] }));
    }
    return [];
  }

  showMedianStep() {
    const steps = this.steps.sort((a, b) => a.to - a.from - (b.to - b.from)), step = steps[(steps.length - 1) >> 1];
    if (step) this.show(step.from, step.to);
  }

  listen(find) {
    const keys = { ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.showAll(), w: () => this.zoom(0.5), s: () => this.zoom(2), a: () => this.pan(-0.2), d: () => this.pan(0.2), Home: () => this.showAll(), m: () => this.showMedianStep(), "/": () => find(".find").focus(), f: () => this.selected && this.focusOn(this.selected, true), Escape: () => timeline.choose("") };
    // while the pointer is on the timeline or it has the focus, and nothing is typed elsewhere
    addEventListener("keydown", (event) => {
      const act = keys[event.key] ?? keys[event.key.toLowerCase()], isHere = this.element.matches(":hover") || this.scroller.matches(":focus");
      if (event.ctrlKey || event.metaKey || event.altKey || !act || !isHere || event.target.matches("input")) return;
      event.preventDefault();
      act();
    });
    find(".in").onclick = () => this.zoom(0.5);
    find(".out").onclick = () => this.zoom(2);
    find(".all").onclick = () => this.showAll();
    find(".path").onclick = () => this.show(...this.meta.window);
    find(".step").onclick = () => this.showMedianStep();
    find(".step").hidden = !this.steps.length;
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
      const { bar, op } = (moved <= 3 && this.at(event.offsetX, event.offsetY)) || {};
      if (!down.delete(event.pointerId)) return;
      if (bar) timeline.select(bar);
      else if (op) timeline.choose(op.run.full[op.lane.ops.name[op.row]]);
    };
    this.drawing.onpointercancel = ({ pointerId }) => down.delete(pointerId);
    this.drawing.onpointerleave = () => this.hideTip();
  }

  // a bar and what is beside it
  focusOn({ lane, row }, mayFill = false) {
    const time = lane.end[row] - lane.start[row], middle = lane.start[row] + time / 2, around = Math.max(4 * time, 5000);
    // if as little is shown already, the bar may fill the view
    const half = !mayFill || this.to - this.from > 2 * around ? around : Math.max(0.55 * time, 500);
    this.show(middle - half, middle + half);
    this.reveal(lane);
  }

  // Drawing

  redraw() {
    this.frame ??= requestAnimationFrame(() => { this.frame = null; this.draw(); });
  }

  // a canvas knows no variables of the style
  colour(look) {
    if (!this.colours) {
      const { style } = this.tip, value = (name) => { style.color = `var(--${name})`; return getComputedStyle(this.tip).color; };
      this.colours = Object.fromEntries([...STACKED, "mark", "ink", "muted", "line", "paper"].map((name) => [name, value(name)]));
      style.color = "";
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
    for (const { run, lane, top: from, high } of this.lines) {
      const y = from - top;
      if (y <= -high || y >= height) continue;
      if (lane) this.drawLane(lane, y);
      else this.drawHeading(run, y);
    }
    this.drawArrows();
    this.drawOverview();
    this.say();
  }

  // where sums are as wide as blocks the bars themselves are drawn, over blocks for those that are only summed up
  drawLane(lane, y) {
    const [first, last] = lane.within(this.from, this.to), finest = lane.levels[0];
    const fine = finest.width * this.scale >= BLOCK || (!lane.rest && last - first <= MOST_BARS);
    const level = fine ? lane.rest : lane.levels.find(({ width }) => width * this.scale >= COLUMN) ?? lane.levels.at(-1);
    const bottom = y + LABEL + (lane.rows - 1) * BAR;
    this.seen.set(lane, { y, bottom, fine, level, first, last });
    this.context.fillStyle = this.colour("line");
    this.context.fillRect(0, bottom + BAR, this.width, 0.5);
    if (level) this.drawSums(level, bottom, (fine ? 0.55 : 0.85) * (this.chosen ? 0.25 : 1), fine ? lane.free : null);
    if (level && fine) this.drawCounts(lane, level, bottom);
    const named = this.drawOps(lane, y + LABEL, fine);
    this.drawBars(lane, y + LABEL, first, last, fine, named);
    for (const { text, x, y: at, width } of named) this.drawName(text, "", x, at, width);
  }

  // the heading of a rank, and of a folded one its lanes in miniature
  drawHeading(run, y) {
    this.context.fillStyle = this.colour("line");
    this.context.fillRect(0, y, this.width, 1);
    const high = STRIP / run.lanes.length;
    if (run.folded) run.lanes.forEach((lane, number) => this.drawMiniature(this.context, lane, y + HEADING - 2 + number * high, high, this.from, this.to));
  }

  // pale behind the bars that lie in them, unless the lowest row has only sums; returns where there is place for names
  drawOps(lane, y, fine) {
    const { context } = this, { ops, run } = lane, [first, last] = lane.opsWithin(this.from, this.to), drawnTo = new Float64Array(lane.rows).fill(-1), named = [];
    context.fillStyle = this.colour("host");
    for (let row = first; row < last; row++) {
      const deep = ops.row[row], x = Math.max(this.x(ops.start[row]), -1), end = Math.min(this.x(ops.end[row]), this.width + 1), top = y + deep * BAR;
      if (end <= drawnTo[deep] || end - x < THINNEST || (!fine && deep === lane.rows - 1 && deep > 0)) continue;
      const sought = !this.chosen || this.chosen.names.get(run)?.has(ops.name[row]);
      context.globalAlpha = this.chosen ? (sought ? 0.75 : 0.1) : 0.4;
      context.fillRect(x, top, Math.max(end - x - 0.5, THINNEST), BAR - 1);
      drawnTo[deep] = end;
      if (end - x > 5 * LETTER) named.push({ text: run.short[ops.name[row]], x: Math.max(x, 0), y: top, width: Math.min(end, this.width) - Math.max(x, 0) });
    }
    context.globalAlpha = 1;
    return named;
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

  // of what is too dense only what was chosen; without the names that the ops around have
  drawBars(lane, y, first, last, all, named) {
    const { context, chosen, selected } = this, names = chosen?.names.get(lane.run), { rank } = lane.run, top = y, rail = y + lane.rows * BAR + 2;
    const drawnTo = new Float64Array(lane.rows).fill(-1), drawnAs = Array(lane.rows).fill("");
    for (let row = first; row < last; row++) {
      const sought = !chosen || names?.has(lane.name[row]) || (rank === chosen.rank && lane.node[row] === chosen.node), deep = lane.row[row];
      if (!all && !(chosen && sought)) continue;
      y = top + deep * BAR;
      const look = this.meta.looks[lane.kind[row] >> 1], x = Math.max(this.x(lane.start[row]), -1), end = Math.min(this.x(lane.end[row]), this.width + 1);
      if (end < drawnTo[deep] && look === drawnAs[deep] && sought) continue;
      const width = Math.max(end - x, chosen && sought ? 2 : THINNEST);
      context.globalAlpha = sought ? 1 : 0.15;
      context.fillStyle = this.colour(look);
      context.fillRect(x, y, width > 3 ? width - 0.5 : width, lane.rows > 1 ? BAR - 1 : BAR);
      if (lane.kind[row] & 1) {
        context.fillStyle = this.colour("mark");
        context.fillRect(x, rail, width, RAIL);
      }
      const text = lane.run.short[lane.name[row]];
      if (width > 7 * LETTER && !named.some((op) => op.text === text && op.y === y && x < op.x + op.width)) this.drawName(text, look, x, y, width);
      [drawnTo[deep], drawnAs[deep]] = [x + width, look];
      if (selected?.lane === lane && selected.row === row) this.outline(x, y, width);
    }
    context.globalAlpha = 1;
  }

  outline(x, y, width) {
    Object.assign(this.context, { globalAlpha: 1, strokeStyle: this.colour("ink"), lineWidth: 2 });
    this.context.strokeRect(x - 1, y - 1, width + 2, BAR + 2);
  }

  drawName(name, look, x, y, width) {
    const { context } = this, fits = (text) => context.measureText(text).width <= width - 6;
    let text = name, letters = Math.min(name.length, Math.ceil((2 * width) / LETTER));
    while (!fits(text)) text = `${name.slice(0, --letters)}…`;
    context.fillStyle = look === "" ? this.colour("ink") : PALE.has(look) ? this.colour("muted") : "#fff";
    context.fillText(text, x + 3, y + BAR / 2 + 0.5);
  }

  // steps of the critical path between lanes; the dependencies of what is hovered or selected, and all that begin and end in view where they are few
  drawArrows() {
    const { context } = this;
    for (const run of this.runs) {
      if (run.folded) continue;
      const steps = [], others = [], { source, target, step } = run.arrows, { laneOf } = run;
      const marked = [this.hovered, this.selected].filter((bar) => bar?.run === run).map(({ lane, row }) => lane.first + row);
      for (let index = 0; index < source.length; index++) {
        const [one, other] = [laneOf[source[index]], laneOf[target[index]]];
        const [begin, end] = [one.end[source[index] - one.first], other.start[target[index] - other.first]];
        if (Math.min(begin, end) > this.to || Math.max(begin, end) < this.from) continue;
        const [above, below] = [this.seen.get(one), this.seen.get(other)];
        const own = marked.includes(source[index]) || marked.includes(target[index]);
        if (!above || !below || !(own || (above.fine && below.fine))) continue;
        const arrow = { own, begin, end, above, below, from: one.row[source[index] - one.first], to: other.row[target[index] - other.first] };
        if (step[index]) steps.push(arrow);
        if (own || !step[index]) others.push(arrow);
      }
      context.strokeStyle = this.colour("mark");
      context.lineWidth = 1.5;
      if (steps.length <= MOST_STEPS) for (const { begin, end, above, below } of steps) this.line(this.x(begin), above.bottom + BAR + 3.5, this.x(end), below.bottom + BAR + 3.5);
      context.strokeStyle = this.colour("ink");
      for (const { own, begin, end, above, below, from, to } of others) {
        if (!own && (others.length > MOST_ARROWS || begin < this.from || end > this.to)) continue;
        Object.assign(context, { globalAlpha: own ? 1 : 0.3, lineWidth: own ? 1.4 : 0.8 });
        const down = above.y < below.y;
        this.line(this.x(begin), above.y + LABEL + from * BAR + (down ? BAR : 0), this.x(end), below.y + LABEL + to * BAR + (down ? 0 : BAR));
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
    const context = canvas2d(this.axis, this.width, AXIS), rough = 110 / this.scale / 1000, power = 10 ** Math.floor(Math.log10(rough)), [unit, length] = unitOf(this.to);
    const step = [1, 2, 5, 10].map((digit) => digit * power).find((one) => one >= rough);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = this.colour("muted");
    this.context.fillStyle = this.colour("line");
    for (let number = Math.ceil(this.from / 1000 / step); number * step <= this.to / 1000; number++) {
      const x = this.x(number * step * 1000), text = `${sevenDigits.format((number * step * 1000) / length)} ${unit}`, half = context.measureText(text).width / 2;
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
      this.miniature = made("canvas");
      const drawing = canvas2d(this.miniature, this.width, this.high), high = this.high / this.lanes.length;
      this.lanes.forEach((lane, number) => this.drawMiniature(drawing, lane, number * high, high, 0, this.length));
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

  // from one time to another
  drawMiniature(context, lane, y, high, from, to) {
    const px = (width) => (width / (to - from)) * this.width, gap = high > 3 ? 1 : 0;
    const level = lane.levels.find(({ width }) => px(width) >= COLUMN) ?? lane.levels.at(-1), first = level.index(from), last = level.index(to);
    const low = new Float32Array(level.count), left = (index) => Math.round(px(index * level.width - from));
    for (const [kind, times] of [...level.spent].sort((a, b) => this.looks[a[0] >> 1] - this.looks[b[0] >> 1])) {
      context.fillStyle = this.colour(this.meta.looks[kind >> 1]);
      times.subarray(first, last + 1).forEach((time, within) => {
        const index = first + within, share = Math.min(time / level.width, 1 - low[index]), tall = high < THIN ? 1 : share;
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
    const how = sums.length ? `each column sums up ${duration(Math.max(...sums), fourDigits)}` : "bar by bar";
    this.range.textContent = `${stretch(this.from, this.to)} of ${duration(this.length, fourDigits)}: ${how}${rests ? "; pale blocks sum up what is not drawn one by one" : ""}`;
    Object.assign(this.element.dataset, { from: this.from / 1000, to: this.to / 1000, columns: sums.length });
  }

  // the bar at a place, or the sums there
  at(x, y) {
    const line = this.lineAt(y + this.scroller.scrollTop), lane = line?.lane, seen = this.seen.get(lane), time = this.time(x), near = 2 / this.scale;
    if (!seen) return null;
    const deep = Math.max(0, Math.min(lane.rows - 1, Math.floor((y - seen.y - LABEL) / BAR)));
    if (seen.fine) {
      const [first, last] = lane.within(time - near, time + near);
      let best = -1, nearest = Infinity;
      for (let row = first; row < last; row++) {
        const away = Math.max(lane.start[row] - time, time - lane.end[row], 0);
        if (lane.row[row] === deep && away <= near && away <= nearest) [best, nearest] = [row, away];
      }
      if (best >= 0) return { bar: { run: lane.run, lane, row: best } };
    }
    const [from, to] = lane.opsWithin(time, time);
    for (let row = from; row < to; row++) if (lane.ops.row[row] === deep && lane.ops.end[row] >= time) return { op: { run: lane.run, lane, row } };
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
    const told = bar ? this.ofBar(bar) : found.op ? this.ofOp(found.op) : this.ofSums(found);
    this.tip.replaceChildren(made("table", {}, ...told.map(([key, value]) => made("tr", {}, made("td", { className: "key", textContent: key }), made("td", value)))));
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
      ["name", run.short[lane.name[row]]], ["lane", lane.label], ["kind", this.meta.looks[kind >> 1]], ["start", duration(lane.start[row])],
      ["time", duration(lane.end[row] - lane.start[row])], ["critical", kind & 1 ? "yes" : "no"], ["node", `${run.rank}/${lane.node[row]}`],
    ];
  }

  ofOp({ run, lane, row }) {
    const { start, end, name } = lane.ops;
    return [["name", run.short[name[row]]], ["lane", lane.label], ["kind", "op, with what it called"], ["start", duration(start[row])], ["time", duration(end[row] - start[row])]];
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
      ["sum of", stretch(begin, Math.min(begin + level.width, this.length))], ["lane", lane.label], [rest ? "not drawn one by one" : "begin in it", whole.format(level.begun[index])],
      ["busy", percent(busy)], ...[...shares].sort((a, b) => b[1] - a[1]).map(([look, share]) => [look, percent(share)]),
    ];
  }
}
