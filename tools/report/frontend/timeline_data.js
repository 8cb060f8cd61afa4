// What the timeline draws: lanes of bars that are drawn one by one, and what they all did in stretches of time, from the finest to the whole run

const FACTOR = 4, BARS_PER_STRETCH = 8, FEWEST_STRETCHES = 1024, MOST_STRETCHES = 65536, COARSEST = 64;

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// columns of whole numbers, as the module `packed` describes them, and the texts behind them
function unpacked(bytes, shapes) {
  const columns = {};
  let at = 0;
  for (const [name, [length, planes]] of Object.entries(shapes)) {
    const values = new Float64Array(length);
    for (let plane = planes - 1; plane >= 0; plane--)
      for (let row = 0, from = at + plane * length; row < length; row++) values[row] = values[row] * 256 + bytes[from + row];
    for (let row = 0; row < length; row++) values[row] = values[row] % 2 ? -(values[row] + 1) / 2 : values[row] / 2;
    columns[name] = values;
    at += length * planes;
  }
  return [columns, JSON.parse(new TextDecoder().decode(bytes.subarray(at)))];
}

function summed(values) {
  for (let row = 1; row < values.length; row++) values[row] += values[row - 1];
  return values;
}

// the first index in ascending values with one above
function firstAbove(values, value) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > value) high = middle;
    else low = middle + 1;
  }
  return low;
}

// so many stretches of `width` ns: the time in each by kind, and how many bars began
class Level {
  constructor(width, count) {
    Object.assign(this, { width, count, spent: new Map(), begun: new Float64Array(count) });
  }

  timesOf(kind) {
    if (!this.spent.has(kind)) this.spent.set(kind, new Float64Array(this.count));
    return this.spent.get(kind);
  }

  index(time) {
    return Math.max(0, Math.min(this.count - 1, Math.floor(time / this.width)));
  }

  add(kind, start, from, to) {
    this.begun[this.index(start)]++;
    const times = this.timesOf(kind), last = this.index(Math.max(to - 1, from));
    for (let index = this.index(from); index <= last; index++)
      times[index] += Math.min(to, (index + 1) * this.width) - Math.max(from, index * this.width);
  }

  coarser() {
    const found = new Level(this.width * FACTOR, Math.ceil(this.count / FACTOR));
    const into = (values, sums) => values.forEach((value, index) => { sums[Math.floor(index / FACTOR)] += value; });
    into(this.begun, found.begun);
    for (const [kind, times] of this.spent) into(times, found.timesOf(kind));
    return found;
  }
}

// the latest end up to each of some ends
function reachOf(ends) {
  const reach = ends.slice();
  for (let row = 1; row < reach.length; row++) reach[row] = Math.max(reach[row], reach[row - 1]);
  return reach;
}

// bars are in order of start, and so are the ops around them; `rows` is how many of these lie one below another
class Lane {
  constructor(run, label, first, columns, rest, ops, rows) {
    Object.assign(this, { run, label, first, rest, ops, rows }, columns);
    this.count = this.start.length;
    this.reach = reachOf(this.end);
    ops.reach = reachOf(ops.end);
  }

  // which bars lie at least partly between two times: from the first up to the second
  within(from, to) {
    return [firstAbove(this.reach, from), firstAbove(this.start, to)];
  }

  // which ops do
  opsWithin(from, to) {
    return [firstAbove(this.ops.reach, from), firstAbove(this.ops.start, to)];
  }

  // of all bars, drawn one by one or not
  get levels() {
    if (this.made) return this.made;
    const count = this.rest?.count ?? Math.max(FEWEST_STRETCHES, Math.min(MOST_STRETCHES, 2 ** Math.ceil(Math.log2(this.count / BARS_PER_STRETCH))));
    const finest = new Level(this.rest?.width ?? Math.ceil(this.run.length / count), count);
    for (let row = 0; row < this.count; row++) finest.add(this.kind[row], this.start[row], this.alone[row], this.end[row]);
    for (const [kind, times] of this.rest?.spent ?? []) times.forEach((time, index) => { finest.timesOf(kind)[index] += time; });
    this.rest?.begun.forEach((number, index) => { finest.begun[index] += number; });
    this.made = [finest];
    while (this.made.at(-1).count > COARSEST) this.made.push(this.made.at(-1).coarser());
    return this.made;
  }

  // of the finest stretches the time in which no bar is drawn by itself
  get free() {
    if (this.left) return this.left;
    const { width, count, spent } = this.levels[0];
    this.left = new Float64Array(count).fill(width);
    for (const times of spent.values()) times.forEach((time, index) => { this.left[index] -= time; });
    for (const times of this.rest.spent.values()) times.forEach((time, index) => { this.left[index] += time; });
    return this.left;
  }
}

// the lanes of one rank; a bar's row counts over all of them
class RankRun {
  static async of(meta, { rank, lanes, columns, sums, data, ops }) {
    const run = new RankRun();
    const [found, names] = unpacked(await inflated(data), columns), [around, opNames] = unpacked(await inflated(ops.data), ops.columns);
    Object.assign(run, { rank, length: meta.length, short: [], full: [], number: new Map(), folded: false });
    const [numbers, opNumbers] = [names, opNames].map((texts) => texts.map((text) => run.numberOf([text].flat())));
    for (const [values, own] of [[found.name, numbers], [around.name, opNumbers]]) values.forEach((name, row) => { values[row] = own[name]; });
    run.lanes = run.lanesOf(found, lanes, run.restsOf(found, sums), run.opsOf(around, ops));
    run.arrows = { source: found.source, target: summed(found.target), reason: found.reason, step: found.step };
    found.target.forEach((target, index) => { found.source[index] += target; });
    run.often = new Uint32Array(run.full.length);
    found.name.forEach((name) => { run.often[name]++; });
    run.nodes = found.node.slice().sort();
    return run;
  }

  // bars and the ops around them share their names
  numberOf(texts) {
    const [short, full] = [texts[0], texts.at(-1)];
    if (!this.number.has(full)) {
      this.number.set(full, this.full.length);
      this.short.push(short);
      this.full.push(full);
    }
    return this.number.get(full);
  }

  // the ops of each lane
  opsOf({ start, time, row, name }, { lanes, rows }) {
    let first = 0;
    return lanes.map((count, number) => {
      const part = (values) => values.subarray(first, first + count), ops = { start: summed(part(start)), row: part(row), name: part(name), rows: rows[number] };
      ops.end = ops.start.map((begin, index) => begin + time[first + index]);
      first += count;
      return ops;
    });
  }

  lanesOf({ gap, time, shared, kind, name, node, row: rowOf }, lanes, rests, ops) {
    const [start, end, alone] = [gap, time, shared];
    let row = 0;
    summed(node);
    return lanes.map(([label, detailed], number) => {
      const first = row;
      for (let before = 0; row < first + detailed; row++) {
        start[row] += before;
        alone[row] += start[row];
        before = end[row] += start[row];
      }
      const part = (values) => values.subarray(first, row);
      const columns = { start: part(start), end: part(end), alone: part(alone), kind: part(kind), name: part(name), node: part(node), row: part(rowOf) };
      return new Lane(this, label, first, columns, rests.get(number), ops[number], ops[number].rows);
    });
  }

  // what the bars did that are only summed up, by lane
  restsOf({ stretch, spent, begun }, { width, count, keys }) {
    const rests = new Map();
    let row = 0, index = 0;
    for (const [lane, kind, cells] of keys) {
      if (!rests.has(lane)) rests.set(lane, new Level(width, count));
      const rest = rests.get(lane), times = rest.timesOf(kind);
      for (const last = row + cells; row < last; row++) {
        index += stretch[row];
        times[index] += spent[row];
        rest.begun[index] += begun[row];
      }
    }
    return rests;
  }

  // the lane of each bar, by its row over all lanes
  get laneOf() {
    return (this.laneOfRow ??= this.lanes.flatMap((lane) => Array(lane.count).fill(lane)));
  }

  // the time on the critical path
  get critical() {
    return this.lanes.reduce((sum, { kind, alone, end }) => kind.reduce((own, value, row) => own + (value & 1 ? end[row] - alone[row] : 0), sum), 0);
  }

  barAt(row) {
    const lane = this.laneOf[row];
    return { run: this, lane, row: row - lane.first };
  }

  hasNode(node) {
    const index = firstAbove(this.nodes, node);
    return index > 0 && this.nodes[index - 1] === node;
  }
}
