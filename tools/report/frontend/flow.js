// The boxes of the data flow, and arrows between them: from and to the outermost closed box around each end

const HEADS = { down: "m-3 -5l3 5 3 -5", right: "m-5 -3l5 3 -5 3", left: "m5 -3l-5 3 5 3" };
const NEAR = 84;

class FlowView {
  constructor(element, { kinds, arrows, layers }) {
    Object.assign(this, { element, kinds, arrows, svg: element.querySelector(".arrows"), boxes: new Map() });
    element.append(...this.layersOf(layers));
    element.addEventListener("toggle", () => this.draw(), true);
    new ResizeObserver(() => this.draw()).observe(element);
  }

  layersOf(layers) {
    return layers.map((layer) => made("div", { className: "layer" }, ...layer.map((box) => this.boxOf(box))));
  }

  boxOf({ number, title, figures, text, share, look: className, open, layers }) {
    // a line does not end between a number and its unit
    const small = made("small", figures.replace(/(?<=\d) (?=%|[nµm]?s\b)/g, "\u00a0"));
    const inside = [made("span", { className: "share", style: `width: ${(100 * share).toFixed(1)}%` }), made("b", title), " ", small];
    const box = layers.length ? made("details", { className, open }, made("summary", { title: text }, ...inside), ...this.layersOf(layers)) : made("div", { className, title: text }, ...inside);
    box.dataset.box = number;
    this.boxes.set(number, box);
    return box;
  }

  seen(number) {
    let seen = this.boxes.get(number);
    for (let around = seen?.parentElement; around && around !== this.element; around = around.parentElement)
      if (around.tagName === "DETAILS" && !around.open) seen = around;
    return seen;
  }

  place(box) {
    const { left, top, width, height } = box.getBoundingClientRect(), origin = this.element.getBoundingClientRect();
    const x = left - origin.left, y = top - origin.top;
    return { x, y, width, height, right: x + width, bottom: y + height, middle: y + height / 2 };
  }

  // phases are the only boxes in one row
  ofTwoPhases(source, target) {
    const rows = this.element.querySelectorAll(":scope > .layer"), phases = rows.length === 1 ? [...rows[0].children] : [];
    return phases.find((phase) => phase.contains(source)) !== phases.find((phase) => phase.contains(target));
  }

  // the boxes that are seen at the ends of arrows, with the text of each arrow between them
  links() {
    const found = new Map();
    for (const [source, target, kind, text] of this.arrows) {
      const ends = [this.seen(source), this.seen(target)];
      if (!ends[0] || !ends[1] || ends[0].contains(ends[1]) || ends[1].contains(ends[0])) continue;
      const key = ends.map((box) => box.dataset.box).join();
      if (!found.has(key)) found.set(key, { ends, kind, texts: [] });
      const link = found.get(key);
      link.kind = this.kinds[kind] === "data" ? kind : link.kind;
      link.texts.push(text);
    }
    return found.values();
  }

  way(source, target) {
    const a = this.place(source), b = this.place(target), beside = (a.y < b.bottom && b.y < a.bottom) || this.ofTwoPhases(source, target), gap = b.y - a.bottom;
    const look = source.parentElement === target.parentElement ? "near" : "between";
    // from a point to another, bent by so much at each end, in x or in y
    const curve = (x, y, tx, ty, head, dx, dy, tdx = -dx) => `M${x} ${y}C${x + dx} ${y + dy} ${tx + tdx} ${ty - dy} ${tx} ${ty}${HEADS[head]}`;
    if (beside && a.right <= b.x) return [curve(a.right, a.middle, b.x, b.middle, "right", Math.max((b.x - a.right) / 2, 4), 0), look];
    if (beside && b.right <= a.x) return [curve(a.x, a.middle, b.right, b.middle, "left", -Math.max((a.x - b.right) / 2, 4), 0), look];
    if (gap > 0 && gap <= NEAR) return [curve(a.x + a.width / 2, a.bottom, b.x + b.width / 2, b.y, "down", 0, gap / 2), "near"];
    const from = a.y + 0.7 * a.height, to = b.y + 0.3 * b.height;
    const out = Math.max(a.right, b.right) + 14 + Math.min(Math.abs(to - from) / 14, 44);
    return [curve(a.right, from, b.right, to, "left", out - a.right, 0, out - b.right), "far"];
  }

  draw() {
    const element = (tag) => document.createElementNS("http://www.w3.org/2000/svg", tag);
    this.svg.replaceChildren(...[...this.links()].map(({ ends, kind, texts }) => {
      const path = element("path"), title = element("title"), [d, look] = this.way(...ends);
      title.textContent = `${ends.map((box) => box.querySelector("b").textContent).join(" → ")}\n${[...new Set(texts)].slice(0, 6).join("\n")}`;
      path.setAttribute("d", d);
      path.setAttribute("class", look);
      path.style.setProperty("--of", `var(--${this.kinds[kind].replaceAll(" ", "-")})`);
      path.append(title);
      return path;
    }));
  }
}

const flow = document.querySelector(".flow .boxes");
if (flow) new FlowView(flow, given("flow-data"));
