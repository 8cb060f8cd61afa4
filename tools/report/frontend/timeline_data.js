// What the timeline draws: lanes of bars that are drawn one by one, and what they all did in stretches of time, from the finest to the whole run

const FACTOR = 4, BARS_PER_STRETCH = 8, FEWEST_STRETCHES = 1024, MOST_STRETCHES = 65536, COARSEST = 64;

// columns of whole numbers, as `pack_columns` describes them, and the texts behind them
async function unpacked({ data, columns: shapes }) {
  const packed = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer()), columns = {};
  let at = 0;
  for (const [name, [length, planes]] of Object.entries(shapes)) {
    const values = (columns[name] = new Float64Array(length));
    for (let plane = planes - 1; plane >= 0; plane--)
      for (let row = 0, from = at + plane * length; row < length; row++) values[row] = values[row] * 256 + bytes[from + row];
    for (let row = 0; row < length; row++) values[row] = values[row] % 2 ? -(values[row] + 1) / 2 : values[row] / 2;
    at += length * planes;
  }
  return { ...columns, texts: JSON.parse(new TextDecoder().decode(bytes.subarray(at))) };
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

  index(time) { return Math.max(0, Math.min(this.count - 1, Math.floor(time / this.width))); }

  addBar(kind, start, from, to) {
    this.begun[this.index(start)]++;
    const times = this.timesOf(kind), last = this.index(Math.max(to - 1, from));
    for (let index = this.index(from); index <= last; index++)
      times[index] += Math.min(to, (index + 1) * this.width) - Math.max(from, index * this.width);
  }

  // another level, whose stretches are `factor` times shorter
  addLevel({ begun, spent }, factor = 1) {
    const into = (values, sums) => values.forEach((value, index) => { sums[Math.floor(index / factor)] += value; });
    into(begun, this.begun);
    for (const [kind, times] of spent) into(times, this.timesOf(kind));
    return this;
  }
}

// bars or ops of a lane in order of start: columns of `start`, `end`, `name` and `row`, how far below the lane's top
class Spans {
  constructor(columns) {
    Object.assign(this, columns, { count: columns.start.length, reach: columns.end.slice() });
    for (let row = 1; row < this.count; row++) this.reach[row] = Math.max(this.reach[row], this.reach[row - 1]);
  }

  // which lie at least partly between two times: from the first up to the second
  within(from, to) { return [firstAbove(this.reach, from), firstAbove(this.start, to)]; }
}

// one bar or op
class Item {
  constructor(lane, spans, at) {
    Object.assign(this, { lane, run: lane.run, at, isBar: spans === lane, start: spans.start[at], end: spans.end[at], name: spans.name[at], row: spans.row[at] });
  }

  get time() { return this.end - this.start; }
  get short() { return this.run.short[this.name]; }
  get full() { return this.run.full[this.name]; }
  get kind() { return this.lane.kind[this.at]; }
  get number() { return this.lane.first + this.at; }
}

// bars, and the ops around them; `rows` is how many of these lie one below another
class Lane extends Spans {
  constructor(run, label, first, columns, rest, ops, rows) {
    super(columns);
    Object.assign(this, { run, label, first, rest, ops: new Spans(ops), rows });
  }

  bar(at) { return new Item(this, this, at); }

  op(at) { return new Item(this, this.ops, at); }

  // of all bars, drawn one by one or not
  get levels() {
    if (this.made) return this.made;
    const count = this.rest?.count ?? Math.max(FEWEST_STRETCHES, Math.min(MOST_STRETCHES, 2 ** Math.ceil(Math.log2(this.count / BARS_PER_STRETCH))));
    const finest = new Level(this.rest?.width ?? Math.ceil(this.run.length / count), count);
    for (let row = 0; row < this.count; row++) finest.addBar(this.kind[row], this.start[row], this.alone[row], this.end[row]);
    this.made = [this.rest ? finest.addLevel(this.rest) : finest];
    for (let last = finest; last.count > COARSEST; last = this.made.at(-1)) this.made.push(new Level(last.width * FACTOR, Math.ceil(last.count / FACTOR)).addLevel(last, FACTOR));
    return this.made;
  }

}

// the lanes of one rank; a bar's number counts over all of them
class RankRun {
  static async of(meta, rank) {
    const { texts, ...columns } = await unpacked(rank), { target, source, reason, step, node, kind, name } = columns;
    const [short, full] = [0, -1].map((which) => texts.map((text) => [text].flat().at(which)));
    const run = Object.assign(new RankRun(), { rank: rank.rank, length: meta.length, short, full });
    run.number = new Map(full.map((text, number) => [text, number]));
    summed(node);
    run.lanes = run.lanesOf(columns, rank);
    summed(target).forEach((number, index) => { source[index] += number; });
    run.arrows = { source, target, reason, step };
    run.often = new Uint32Array(full.length);
    for (const number of name.subarray(0, kind.length)) run.often[number]++;
    run.nodes = node.slice().sort();
    return run;
  }

  // names are those of the bars, then those of the ops around them
  lanesOf({ gap, time, shared, kind, name, node, row, op_start, op_time, op_row, ...spent }, { lanes, sums }) {
    const rests = this.restsOf(spent, sums), opNames = name.subarray(kind.length);
    const part = (columns, first, count) => Object.fromEntries(Object.entries(columns).map(([key, values]) => [key, values.subarray(first, first + count)]));
    let first = 0, firstOp = 0;
    return lanes.map(([label, count, opCount, rows], number) => {
      const columns = part({ start: gap, end: time, alone: shared, kind, name, node, row }, first, count);
      for (let at = 0, before = 0; at < count; at++) {
        columns.start[at] += before;
        columns.alone[at] += columns.start[at];
        before = columns.end[at] += columns.start[at];
      }
      const ops = part({ start: op_start, end: op_time, name: opNames, row: op_row }, firstOp, opCount);
      summed(ops.start).forEach((begin, at) => { ops.end[at] += begin; });
      [first, firstOp] = [first + count, firstOp + opCount];
      return new Lane(this, label, first - count, columns, rests.get(number), ops, rows);
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

  // the lane of each bar, by its number
  get laneOf() { return (this.laneOfBar ??= this.lanes.flatMap((lane) => Array(lane.count).fill(lane))); }

  bar(number) {
    const lane = this.laneOf[number];
    return lane.bar(number - lane.first);
  }

  hasNode(node) { return this.nodes[firstAbove(this.nodes, node) - 1] === node; }
}
