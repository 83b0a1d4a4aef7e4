// A small plot: a line over the last seconds as SVG, with a text for screen readers.

import { make, setAttribute, setText } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 300;
const HEIGHT = 64;

/** A figure: its name and present value in words, the line, and the labels of the edges. */
export class Plot {
  #name;
  #unit;
  #format;
  #now = make("strong");
  #more = make("span", "under");
  #svg = svgElement("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    preserveAspectRatio: "none",
    role: "img",
  });
  #area = svgElement("path", { class: "area" });
  #lines = [];
  #top = make("span");
  #start = make("span");
  #end = make("span");

  /** `format` formats a value. `classes` are those of the lines; the area under the first is tinted. */
  constructor(figure, name, unit, format, { classes = ["line"], legend = "" } = {}) {
    this.#name = name;
    this.#unit = unit;
    this.#format = format;
    setAttribute(this.#svg, "aria-label", `${name}: nothing known yet`);
    this.#svg.append(this.#area);
    for (const kind of classes) {
      const line = svgElement("path", { class: kind, "vector-effect": "non-scaling-stroke" });
      this.#lines.push(line);
      this.#svg.append(line);
    }
    const axis = make("p", "axis", this.#start, make("span", "", legend), this.#end);
    const top = make("p", "top-mark", this.#top);
    const caption = make("figcaption", "", make("span", "", name), this.#now, this.#more);
    figure.append(caption, top, this.#svg, axis);
  }

  /** Draws series of one value a second up to `end`, the oldest first; null is a second without a value. */
  render(series, now, more, end) {
    const values = series.flat().filter((value) => value !== null);
    const highest = values.length > 0 ? Math.max(...values) : 0;
    const scale = niceAbove(highest);
    setText(this.#now, now);
    setText(this.#more, more);
    setText(this.#top, this.#format(scale));
    setText(this.#start, `${series[0].length} s before`);
    setText(this.#end, end);
    series.forEach((points, index) => setAttribute(this.#lines[index], "d", lineOf(points, scale)));
    setAttribute(this.#area, "d", areaOf(series[0], scale));
    setAttribute(this.#svg, "aria-label", this.#words(series[0], now, highest, end));
  }

  /** Describes the plot for screen readers. */
  #words(points, now, highest, end) {
    const span = `${this.#name} over ${points.length} seconds`;
    return `${span}: ${now} ${end}, at most ${this.#format(highest)} ${this.#unit}`.trim();
  }
}

/** Returns the smallest of 1, 2, 5, 10, 20 … that is not below the value: a scale that seldom changes. */
function niceAbove(value) {
  if (value <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

function lineOf(points, scale) {
  return runsOf(points, scale).map(pathOf).join("");
}

/** The area under the line, down to zero. */
function areaOf(points, scale) {
  const closed = runsOf(points, scale).map((run) => {
    const [[left], [right]] = [run[0], run.at(-1)];
    return `${pathOf([[left, HEIGHT], ...run, [right, HEIGHT]])}Z`;
  });
  return closed.join("");
}

function pathOf(points) {
  return `M${points.map(([x, y]) => `${x},${y}`).join("L")}`;
}

/** The points between gaps, as [x, y] in the drawing; a single one becomes a short dash. */
function runsOf(points, scale) {
  const runs = [];
  const step = WIDTH / Math.max(1, points.length - 1);
  let run = null;
  points.forEach((value, index) => {
    if (value === null) {
      run = null;
      return;
    }
    if (run === null) runs.push((run = []));
    run.push([round(index * step), round(HEIGHT - 1 - (value / scale) * (HEIGHT - 3))]);
  });
  return runs.map(([[x, y], ...others]) => (others.length > 0 ? [[x, y], ...others] : [[x - 1, y], [x, y]]));
}

function round(number) {
  return Math.round(number * 10) / 10;
}

function svgElement(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}
