// How the timeline is drawn: bars one by one where these can be seen, in columns of sums where not, arrows between them, and all in miniature

const LABEL = 15, BAR = 15, FOOT = 6, RAIL = 3, AXIS = 20, THIN = 5, HEADING = 20; // px
const THINNEST = 0.7, COLUMN = 1.5, BLOCK = 6, LETTER = 6.3; // px
const MOST_BARS = 3000, MOST_STEPS = 2000, MOST_ARROWS = 40;
const STACKED = ["computation", "communication", "memory", "host", "unrecorded", "metadata", "delay", "waiting", "idle"];
const PALE = new Set(["waiting", "idle", "unrecorded", "metadata"]);

function canvas2d(element, width, height) {
  const scale = devicePixelRatio || 1, [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (element.width !== wide || element.height !== high) Object.assign(element, { width: wide, height: high });
  Object.assign(element.style, { width: `${width}px`, height: `${height}px` });
  const context = element.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

// what the view shows of `lines`, ranks and their lanes one below another, from one time to another
class TimelineDrawing {
  time(x) { return this.from + (x / this.width) * (this.to - this.from); }

  x(time) { return ((time - this.from) / (this.to - this.from)) * this.width; }

  redraw() {
    this.frame ??= requestAnimationFrame(() => { this.frame = null; this.draw(); });
  }

  // a canvas knows no variables of the style
  colour(look) {
    if (!this.colours) {
      const { style } = tip, value = (name) => { style.color = `var(--${name})`; return getComputedStyle(tip).color; };
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
    for (const { lane, top: from, high } of this.lines) {
      const y = from - top;
      if (y <= -high || y >= height) continue;
      if (lane) this.drawLane(lane, y);
      else this.fill("line", 0, y, this.width, 1);
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
    this.fill("line", 0, bottom + BAR, this.width, 0.5);
    if (level) this.drawSums(level, bottom, (fine ? 0.55 : 0.85) * (this.chosen ? 0.25 : 1));
    const named = this.drawOps(lane, y + LABEL, fine);
    this.drawBars(lane, y + LABEL, first, last, fine, named);
    for (const { text, x, y: at, width } of named) this.drawName(text, "", x, at, width);
  }

  fill(colour, x, y, width, high, alpha = 1) {
    const { context } = this;
    context.globalAlpha = alpha;
    context.fillStyle = this.colour(colour);
    context.fillRect(x, y, width, high);
    context.globalAlpha = 1;
  }

  // from where to where a span is drawn
  ends(spans, at) {
    return [Math.max(this.x(spans.start[at]), -1), Math.min(this.x(spans.end[at]), this.width + 1)];
  }

  // pale behind the bars that lie in them, unless the lowest row has only sums; returns where there is place for names
  drawOps(lane, y, fine) {
    const { ops, run } = lane, [first, last] = ops.within(this.from, this.to), drawnTo = new Float64Array(lane.rows).fill(-1), named = [];
    for (let at = first; at < last; at++) {
      const deep = ops.row[at], [x, end] = this.ends(ops, at), top = y + deep * BAR;
      if (end <= drawnTo[deep] || end - x < THINNEST || (!fine && deep === lane.rows - 1 && deep > 0)) continue;
      const sought = this.chosen?.names.get(run)?.has(ops.name[at]);
      this.fill("host", x, top, Math.max(end - x - 0.5, THINNEST), BAR - 1, !this.chosen ? 0.4 : sought ? 0.75 : 0.1);
      drawnTo[deep] = end;
      if (end - x > 5 * LETTER) named.push({ text: run.short[ops.name[at]], x: Math.max(x, 0), y: top, width: Math.min(end, this.width) - Math.max(x, 0) });
    }
    return named;
  }

  // the kinds of time of a level one upon another, `high` where they fill a stretch; thin ones are paler instead of lower
  drawStack(context, level, from, to, left, bottom, high, alpha = 1) {
    const low = new Float32Array(to - from + 1), path = new Float32Array(to - from + 1), thin = high < THIN;
    for (const [kind, times] of [...level.spent].sort(([a], [b]) => this.looks[a >> 1] - this.looks[b >> 1])) {
      context.fillStyle = this.colour(this.meta.looks[kind >> 1]);
      for (let index = from; index <= to; index++) {
        if (!times[index]) continue;
        const base = low[index - from], share = Math.max(Math.min(times[index] / level.width, 1 - base), 0);
        const tall = thin ? high : Math.max(share * high, 0.5);
        context.globalAlpha = thin ? share : alpha;
        context.fillRect(left(index), bottom - (thin ? 0 : base * high) - tall, left(index + 1) - left(index), tall);
        low[index - from] += share;
        if (kind & 1) path[index - from] += share;
      }
    }
    context.globalAlpha = 1;
    return path;
  }

  drawSums(level, y, alpha) {
    const from = level.index(this.from), to = level.index(this.to), wide = level.width * this.scale, left = (index) => Math.round(this.x(index * level.width));
    this.drawStack(this.context, level, from, to, left, y + BAR, BAR, alpha).forEach((share, index) => {
      const x = left(from + index);
      if (share) this.fill("mark", x, y + BAR + 2, Math.round(x + wide) - x, RAIL, alpha * Math.max(0.25, Math.min(share, 1)));
    });
  }

  // of what is too dense only what was chosen; without the names that the ops around have
  drawBars(lane, top, first, last, all, named) {
    const { chosen, selected } = this, { run } = lane, names = chosen?.names.get(run), rail = top + lane.rows * BAR + 2;
    const drawnTo = new Float64Array(lane.rows).fill(-1), drawnAs = Array(lane.rows).fill("");
    for (let at = first; at < last; at++) {
      const sought = !chosen || names?.has(lane.name[at]) || (run.rank === chosen.rank && lane.node[at] === chosen.node), deep = lane.row[at];
      if (!all && !(chosen && sought)) continue;
      const look = this.meta.looks[lane.kind[at] >> 1], [x, end] = this.ends(lane, at), y = top + deep * BAR, alpha = sought ? 1 : 0.15;
      if (end < drawnTo[deep] && look === drawnAs[deep] && sought) continue;
      const width = Math.max(end - x, chosen && sought ? 2 : THINNEST);
      this.fill(look, x, y, width > 3 ? width - 0.5 : width, lane.rows > 1 ? BAR - 1 : BAR, alpha);
      if (lane.kind[at] & 1) this.fill("mark", x, rail, width, RAIL, alpha);
      const text = run.short[lane.name[at]];
      this.context.globalAlpha = alpha;
      if (width > 7 * LETTER && !named.some((op) => op.text === text && op.y === y && x < op.x + op.width)) this.drawName(text, look, x, y, width);
      this.context.globalAlpha = 1;
      [drawnTo[deep], drawnAs[deep]] = [x + width, look];
      if (selected?.lane === lane && selected.at === at) this.outline("ink", 2, x - 1, y - 1, width + 2, BAR + 2);
    }
  }

  outline(colour, lineWidth, ...box) {
    Object.assign(this.context, { strokeStyle: this.colour(colour), lineWidth }).strokeRect(...box);
  }

  drawName(name, look, x, y, width) {
    const { context } = this, fits = (text) => context.measureText(text).width <= width - 6;
    let text = name, letters = Math.min(name.length, Math.ceil((2 * width) / LETTER));
    while (!fits(text)) text = `${name.slice(0, --letters)}…`;
    context.fillStyle = look === "" ? this.colour("ink") : PALE.has(look) ? this.colour("muted") : "#fff";
    context.fillText(text, x + 3, y + BAR / 2 + 0.5);
  }

  // steps of the critical path between lanes; the dependencies of what is selected, and all that begin and end in view where they are few
  drawArrows() {
    for (const run of this.runs) {
      const steps = [], others = [], { source, target, step } = run.arrows, { laneOf } = run;
      const marked = this.selected?.run === run ? this.selected.number : -1;
      for (let index = 0; index < source.length; index++) {
        const [one, other] = [laneOf[source[index]], laneOf[target[index]]], [from, to] = [source[index] - one.first, target[index] - other.first];
        const [begin, end] = [one.end[from], other.start[to]];
        if (Math.min(begin, end) > this.to || Math.max(begin, end) < this.from) continue;
        const [above, below] = [this.seen.get(one), this.seen.get(other)], own = marked === source[index] || marked === target[index];
        if (!above || !below || !(own || (above.fine && below.fine))) continue;
        const isWithin = begin >= this.from && end <= this.to, [x, toX] = [this.x(begin), this.x(end)], down = above.y < below.y;
        if (step[index]) steps.push([x, above.bottom + BAR + 3.5, toX, below.bottom + BAR + 3.5]);
        if (own || !step[index]) others.push({ own, isWithin, line: [x, above.y + LABEL + one.row[from] * BAR + (down ? BAR : 0), toX, below.y + LABEL + other.row[to] * BAR + (down ? 0 : BAR)] });
      }
      for (const line of steps.length <= MOST_STEPS ? steps : []) this.line("mark", 1.5, 1, ...line);
      for (const { own, isWithin, line } of others) if (own || (others.length <= MOST_ARROWS && isWithin)) this.line("ink", own ? 1.4 : 0.8, own ? 1 : 0.3, ...line);
    }
  }

  line(colour, lineWidth, globalAlpha, x, y, toX, toY) {
    const { context } = this;
    Object.assign(context, { strokeStyle: this.colour(colour), lineWidth, globalAlpha });
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(toX, toY);
    context.stroke();
    context.globalAlpha = 1;
  }

  drawAxis() {
    const context = canvas2d(this.axis, this.width, AXIS), rough = 110 / this.scale / 1000, power = 10 ** Math.floor(Math.log10(rough)), [unit, length] = unitOf(this.to);
    const step = [1, 2, 5, 10].map((digit) => digit * power).find((one) => one >= rough);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = this.colour("muted");
    for (let number = Math.ceil(this.from / 1000 / step); number * step <= this.to / 1000; number++) {
      const x = this.x(number * step * 1000), text = `${sevenDigits.format((number * step * 1000) / length)} ${unit}`, half = context.measureText(text).width / 2;
      context.fillRect(x, AXIS - 5, 1, 5);
      if (x >= half && x + half <= this.width) context.fillText(text, x - half, AXIS - 8);
      this.fill("line", x, 0, 0.5, this.scroller.clientHeight);
    }
  }

  // all lanes in miniature, drawn once for each width and colour, and the part that is shown below
  drawOverview() {
    const key = `${this.width} ${this.colour("paper")} ${devicePixelRatio}`, context = canvas2d(this.overview, this.width, this.high);
    if (key !== this.miniatureOf) {
      this.miniatureOf = key;
      this.miniature = made("canvas");
      const drawing = canvas2d(this.miniature, this.width, this.high), high = this.high / this.lanes.length;
      this.lanes.forEach((lane, number) => this.drawMiniature(drawing, lane, number * high, high));
    }
    context.drawImage(this.miniature, 0, 0, this.width, this.high);
    const from = (this.from / this.length) * this.width, to = (this.to / this.length) * this.width;
    Object.assign(context, { fillStyle: this.colour("paper"), globalAlpha: 0.6, strokeStyle: this.colour("mark"), lineWidth: 1.5 });
    context.fillRect(0, 0, from, this.high);
    context.fillRect(to, 0, this.width - to, this.high);
    context.globalAlpha = 1;
    context.strokeRect(Math.min(from, this.width - 3) + 0.75, 0.75, Math.max(to - from - 1.5, 1.5), this.high - 1.5);
  }

  drawMiniature(context, lane, y, high) {
    const px = (width) => (width / this.length) * this.width, level = lane.levels.find(({ width }) => px(width) >= COLUMN) ?? lane.levels.at(-1);
    const tall = high - (high > 3 ? 1 : 0), left = (index) => Math.round(px(index * level.width));
    this.drawStack(context, level, 0, level.count - 1, left, y + tall, tall);
  }
}
