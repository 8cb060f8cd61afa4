// Tables: rows come as JSON, are sorted by a click on a heading, filtered by text, shown in part until more are asked for, and saved as CSV

const FIRST = 200, AT_ONCE = 2000, FEW = 10, LONG = 24; // rows; letters for the last
const NAMES = ["name", "kernel", "op", "node"]; // columns whose cells lead to the timeline where it shows what they name
const formats = {
  exact: (value) => (value !== 0 && Math.abs(value) < 0.001 ? String(Number(value.toPrecision(1))) : thousandths.format(value)),
  identity: (value) => (value === -1 ? "–" : String(value)),
  whole: (value) => whole.format(value),
  number: (value) => (value !== 0 && Math.abs(value) < 0.1 ? String(Number(value.toPrecision(2))) : tenths.format(value)),
};
const timeline = { shows: () => false, choose: () => {}, select: () => {} }; // until it is drawn

// the units, with their sizes, in which large values are shown
const LARGER = { µs: [["s", 1e6], ["ms", 1e3]], B: [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]], "": [["10^12", 1e12], ["10^9", 1e9]] };

class Column {
  constructor({ key, label, unit, kind, values, texts }) {
    Object.assign(this, { key, values, texts: texts?.map((text) => [text].flat()) });
    const most = texts || kind === "identity" ? 0 : values.reduce((largest, value) => Math.max(largest, Math.abs(value)), 0);
    const [shown, size] = LARGER[unit]?.find((larger) => most >= larger[1]) ?? [unit, 1];
    this.heading = label && shown ? `${label} [${shown}]` : label || shown;
    this.format = size === 1 ? formats[kind] : (value) => formats.exact(value / size);
  }

  shown(row) {
    const value = this.values[row];
    return value === null ? "" : this.texts ? this.texts[value][0] : this.format(value);
  }

  full(row) { return this.texts ? this.texts[this.values[row]].at(-1) : this.values[row] ?? ""; }

  compare(a, b) {
    if (!this.texts) return (this.values[a] ?? -Infinity) - (this.values[b] ?? -Infinity) || 0;
    const [one, other] = [this.shown(a), this.shown(b)];
    return one < other ? -1 : Number(one > other);
  }
}

class Grid {
  constructor(details, table) {
    const { rows, of, largest } = table, title = details.dataset.below === table.title ? "Table" : table.title, [some, all] = [rows, of].map((count) => whole.format(count));
    const part = largest ? `the ${some} of ${all} rows with the largest ${largest}` : `the first ${some} of ${all} rows`;
    const button = (className, textContent, more) => made("button", { className, textContent, ...more });
    const input = made("input", { type: "search", placeholder: "filter", ariaLabel: `Filter ${title}`, hidden: rows <= FEW }), body = made("tbody");
    const more = button("all", "show all", { hidden: true }), csv = button("csv", "CSV", { title: "save the rows as a file of comma-separated values" });
    const columns = table.columns.map((column) => new Column(column)), headings = columns.map(({ heading, texts }) => made("th", { className: texts ? "" : "number" }, made("button", heading)));
    const status = made("span", { className: "count", role: "status" }), scroll = { className: "scroll", role: "region", tabIndex: 0, ariaLabel: title };
    details.append(made("summary", {}, `${title} `, made("small", rows < of ? `${part}; --csv writes all` : `${all} row${of === 1 ? "" : "s"}`)),
      made("div", { className: "tools" }, input, " ", csv, " ", more, " ", status),
      made("div", scroll, made("table", {}, made("thead", {}, made("tr", {}, ...headings)), body)));
    Object.assign(this, { details, body, input, more, status, headings, most: FIRST, columns });
    this.rank = this.columns.find((column) => column.key === "rank");
    this.named = this.columns.filter((column) => NAMES.includes(column.key));
    this.order = Array.from({ length: rows }, (_, row) => row);
    headings.forEach((heading, index) => { heading.firstChild.onclick = () => this.sort(heading, this.columns[index]); });
    details.ontoggle = () => details.open && !body.rows.length && this.show();
    csv.onclick = () => this.save();
    more.onclick = () => { this.most = Infinity; this.show(); };
    input.oninput = () => this.show();
    body.onclick = ({ target }) => {
      const cell = target.closest("td[data-name]");
      if (cell) timeline.choose(cell.dataset.name, true);
    };
    if (details.open) this.show();
  }

  // what a cell is called on the timeline
  name(column, row) {
    const own = String(column.full(row));
    return column.key === "node" && this.rank ? `${this.rank.values[row]}/${own}` : own;
  }

  matching() {
    const wanted = this.input.value.trim().toLowerCase();
    if (!wanted) return this.order;
    this.searched ??= this.order.slice().sort((a, b) => a - b).map((row) =>
      this.columns.map((column) => `${column.shown(row)}\n${column.full(row)}`).join("\n").toLowerCase());
    return this.order.filter((row) => this.searched[row].includes(wanted));
  }

  sort(heading, column) {
    const down = heading.ariaSort ? heading.ariaSort === "ascending" : !column.texts;
    this.order.sort((a, b) => (down ? -1 : 1) * column.compare(a, b));
    for (const other of this.headings) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    this.show();
  }

  // many rows are added a part at a time, so that the page goes on answering
  show() {
    const rows = this.matching(), shown = rows.slice(0, this.most), filtered = rows.length < this.order.length;
    const task = (this.task = {});
    const add = (from) => {
      if (task !== this.task) return;
      this.body.append(...shown.slice(from, from + AT_ONCE).map((row) => this.line(row)));
      if (from + AT_ONCE < shown.length) requestAnimationFrame(() => add(from + AT_ONCE));
    };
    this.body.replaceChildren();
    add(0);
    const of = filtered ? `${whole.format(rows.length)} that match` : whole.format(rows.length);
    this.status.textContent =
      shown.length < rows.length ? `${whole.format(shown.length)} of ${of} shown` : filtered ? of : "";
    this.more.hidden = shown.length === rows.length;
  }

  line(row) {
    const line = made("tr");
    for (const column of this.columns) {
      const text = column.shown(row), full = String(column.full(row)), name = this.named.includes(column) ? this.name(column, row) : "";
      const cell = made("td", { textContent: text, className: !column.texts ? "number" : text.length > LONG ? "long" : "" });
      if (column.texts && (full !== text || text.length > 40)) cell.title = full;
      if (name && timeline.shows(name)) {
        cell.dataset.name = name;
        cell.replaceChildren(made("button", text));
      }
      line.append(cell);
    }
    return line;
  }

  // all rows that match, in the order shown
  save() {
    const field = (value) => (/[",\r\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value);
    // what a spreadsheet would take for a formula, as write_csv has it
    const text_of = (value) => (typeof value === "string" && /^[=+\-@\t\r\n＝＋－＠]/.test(value) ? `'${value}` : value);
    const lines = this.matching().map((row) => this.columns.map((column) => field(text_of(column.full(row)))).join(","));
    const text = [this.columns.map((column) => column.key).join(","), ...lines, ""].join("\r\n");
    const link = made("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: `${this.details.dataset.table}.csv` });
    link.click();
    URL.revokeObjectURL(link.href);
  }
}

const tables = given("rows");
const grids = [...document.querySelectorAll("details.table")].map((details) => new Grid(details, tables[details.dataset.table]));

// The table of modules as a tree, whose branches open and close, each with its share of the rank's time

const MOST_BRANCHES = 2000, OPEN_TO = 2;

function drawTree(element, { columns }) {
  const { rank, depth, name, path, critical_pct, operations_subtree, ...times } = Object.fromEntries(columns.map((column) => [column.key, column]));
  const of = times.device_subtree.values.some(Boolean) ? "device" : "host", [subtree, self] = [times[`${of}_subtree`], times[`${of}_self`]];
  // a module's parent is at least as large and comes before it
  const time = (row) => subtree.values[row] ?? 0, outer = [...depth.values.keys()].filter((row) => !depth.values[row]), totals = new Map();
  const largest = [...depth.values.keys()].sort((a, b) => time(b) - time(a)).slice(0, MOST_BRANCHES).sort((a, b) => a - b);
  for (const row of outer) totals.set(rank.values[row], (totals.get(rank.values[row]) ?? 0) + time(row));
  const share = (row) => 100 * (time(row) / (totals.get(rank.values[row]) || 1)), number = (value) => (value === null ? "" : formats.number(value));
  const shown = Object.entries({
    [`${of} [µs]`]: (row) => number(subtree.values[row]), "self [µs]": (row) => number(self.values[row]), "of all [%]": (row) => number(share(row)),
    "critical path [%]": (row) => number(critical_pct.values[row]), GFLOP: (row) => number(operations_subtree.values[row] && operations_subtree.values[row] / 1e9),
  }).filter(([, text]) => outer.some(text));
  const numbers = (texts) => texts.map((textContent) => made("span", { className: "number", textContent }));
  element.style.setProperty("--columns", shown.length);
  element.append(made("p", {}, made("span"), ...numbers(shown.map(([title]) => title))));
  const above = [element];
  largest.forEach((row, index) => {
    const deep = depth.values[row], isOuter = totals.size > 1 && !deep, title = `${isOuter ? `rank ${rank.values[row]} · ` : ""}${name.full(row)}`;
    const line = [
      made("span", { className: "share", style: `width: ${share(row).toFixed(1)}%` }),
      made("span", { className: "name", style: `padding-left: ${2 * deep}ch`, title: path.full(row), textContent: title }), ...numbers(shown.map(([, text]) => text(row))),
    ];
    const isBranch = depth.values[largest[index + 1]] > deep, open = deep < OPEN_TO && totals.size === 1;
    above[deep + 1] = isBranch ? made("details", { open }, made("summary", {}, ...line)) : made("div", {}, ...line);
    above[deep].append(above[deep + 1]);
  });
}

const tree = document.querySelector(".tree");
if (tree) drawTree(tree, grids.find(({ details }) => details.dataset.table === "modules"));
