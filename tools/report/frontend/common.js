"use strict";

// What all scripts share: making elements, and writing numbers and times

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const thousandths = new Intl.NumberFormat("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 });
const sevenDigits = new Intl.NumberFormat("en", { maximumSignificantDigits: 7 });
const fourDigits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const percent = (part) => `${tenths.format(100 * part)} %`;
const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]]; // and their ns
const unitOf = (ns) => UNITS.find(([, length]) => Math.abs(ns) >= length) ?? UNITS.at(-1);
const duration = (ns, digits = sevenDigits) => { const [unit, length] = unitOf(ns); return `${digits.format(ns / length)} ${unit}`; };
// from and to in one unit, as far as they differ
const stretch = (from, to) => {
  const [unit, length] = unitOf(to), decimals = Math.max(0, Math.min(6, 3 - Math.floor(Math.log10(Math.max(to - from, 1) / length))));
  const places = new Intl.NumberFormat("en", { maximumFractionDigits: decimals });
  return `${places.format(from / length)} to ${places.format(to / length)} ${unit}`;
};

// an element with a text or other properties, and what is in it
function made(tag, properties = {}, ...inside) {
  const element = Object.assign(document.createElement(tag), typeof properties === "string" ? { textContent: properties } : properties);
  element.append(...inside);
  return element;
}

// what a mark of a chart or of the timeline stands for is shown beside the mouse, as pairs of texts
const tip = document.getElementById("tip");
function tell(pairs, { clientX, clientY }) {
  tip.classList.toggle("visible", Boolean(pairs));
  if (!pairs) return;
  tip.replaceChildren(made("table", {}, ...pairs.map(([key, value]) => made("tr", {}, made("td", { className: "key", textContent: key }), made("td", String(value))))));
  const beside = (at, size, room) => (at + 14 + size < room ? at + 14 : at - 14 - size);
  Object.assign(tip.style, { left: `${Math.max(4, beside(clientX, tip.offsetWidth, innerWidth))}px`, top: `${beside(clientY, tip.offsetHeight, innerHeight)}px` });
}

// what is given to the page as JSON, null where it has none
const given = (name) => JSON.parse(document.getElementById(name)?.textContent ?? "null");
