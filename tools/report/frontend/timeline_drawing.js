// How the timeline is drawn: bars one by one where these can be seen, in columns of sums where not, arrows between them, and all in miniature

const LABEL = 15, BAR = 15, FOOT = 6, RAIL = 3, AXIS = 20, THIN = 6, HEADING = 20, STRIP = 24; // px
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
  time(x) {
    return this.from + (x / this.width) * (this.to - this.from);
  }

  x(time) {
    return ((time - this.from) / (this.to - this.from)) * this.width;
  }

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
}
