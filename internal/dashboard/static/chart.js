// Small charts: one column for each step of time. Widths are percentages, so a chart needs no measuring and fits every window. The
// values of a column are shown above the chart, on hover or with the arrow keys, so nothing covers the columns.

import { h } from "./dom.js";
import { clockTime, dayTime, number, span } from "./format.js";

const height = 96;
const room = 14; // above the columns, for the label of the highest line

// bars draws stacked counts. Each column is {at, values}, with a value for each series; a series is {name, state}.
export function bars({ title, columns, series }) {
  const totals = columns.map((c) => c.values.reduce((sum, n) => sum + n, 0));
  const top = niceTop(Math.max(1, ...totals));
  const y = (n) => room + (height - room) * (1 - n / top);
  const marks = columns.flatMap((column, i) => {
    let below = 0;
    return column.values.map((n, k) => {
      if (!n) return null;
      const from = y((below += n));
      return h("rect", {
        class: `fill-${series[k].state}`,
        x: percent(i, columns),
        y: from,
        width: percent(0.8, columns),
        height: Math.max(1, y(below - n) - from),
      });
    });
  });
  const sums = series.map((s, k) => `${number(columns.reduce((sum, c) => sum + c.values[k], 0))} ${s.name}`);
  return chart({
    title,
    columns,
    marks,
    summary: sums.join(", "),
    lines: [
      [y(top), number(top)],
      [y(top / 2), top % 2 ? "" : number(top / 2)],
    ],
    read: (c) => series.map((s, k) => `${number(c.values[k])} ${s.name}`).join(", "),
    legend: series,
  });
}

// The lines of a chart of durations, in milliseconds.
const tops = [10, 100, 1000, 10000, 60000, 600000, 3600000, 36000000];

// ranges draws from the median to the 95th percentile of each column, on a logarithmic scale. Each column is {at, low, high} in
// milliseconds, with null where nothing happened.
export function ranges({ title, columns }) {
  const known = columns.filter((c) => c.high !== null);
  const bottom = 1;
  const worst = known.reduce((most, c) => Math.max(most, c.high), 0);
  const top = tops.find((ms) => ms >= worst) ?? tops.at(-1);
  const y = (ms) => room + (height - room) * (1 - Math.log(Math.max(ms, bottom) / bottom) / Math.log(top / bottom));
  const marks = columns.map((c, i) =>
    c.high === null
      ? null
      : h(
          "g",
          {},
          h("rect", {
            class: "fill-range",
            x: percent(i, columns),
            y: y(c.high),
            width: percent(0.8, columns),
            height: Math.max(2, y(c.low) - y(c.high)),
          }),
          h("rect", { class: "fill-median", x: percent(i, columns), y: y(c.low) - 1, width: percent(0.8, columns), height: 2 }),
        ),
  );
  const lines = [];
  for (const ms of tops.filter((ms) => ms <= top).reverse()) {
    if (!lines.length || y(ms) - lines.at(-1)[0] > 18) lines.push([y(ms), span(ms)]);
  }
  return chart({
    title,
    columns,
    marks,
    lines,
    summary: known.length ? `95th percentile up to ${span(worst)}` : "nothing in this time",
    read: (c) => (c.high === null ? "nothing" : `half below ${span(c.low)}, 95 % below ${span(c.high)}`),
    legend: [
      { name: "median", state: "median" },
      { name: "to the 95th percentile", state: "range" },
    ],
  });
}

function chart({ title, columns, marks, lines, summary, read, legend }) {
  const label = (c) => (columns.length > 1 && columns.at(-1).at - columns[0].at > 7200000 ? dayTime(c.at) : clockTime(c.at));
  const point = (plot, at) => {
    const i = Math.min(columns.length - 1, Math.max(0, at));
    plot.jq.at = i;
    const caption = plot.parentElement.querySelector(".pointed");
    caption.textContent = `${label(columns[i])}: ${read(columns[i])}`;
    const cursor = plot.querySelector(".cursor");
    cursor.setAttribute("x", percent(i, columns));
    cursor.setAttribute("width", percent(0.8, columns));
    cursor.classList.add("shown");
  };
  const leave = (plot) => {
    plot.jq.at = undefined;
    plot.parentElement.querySelector(".pointed").textContent = "";
    plot.querySelector(".cursor").classList.remove("shown");
  };
  const keys = { ArrowLeft: -1, ArrowRight: 1 };
  return h(
    "figure.chart",
    {},
    h(
      "figcaption",
      {},
      h("span.title", {}, title),
      " ",
      h("span.summary", {}, summary),
      h("span.pointed", { "data-opaque": "", "aria-live": "polite" }),
    ),
    h(
      "div.plot",
      {
        tabindex: "0",
        role: "img",
        "aria-label": `${title}: ${summary}. Arrow keys read single columns.`,
        onpointermove: (e) => {
          const box = e.currentTarget.getBoundingClientRect();
          point(e.currentTarget, Math.floor(((e.clientX - box.left) / box.width) * columns.length));
        },
        onpointerleave: (e) => leave(e.currentTarget),
        onblur: (e) => leave(e.currentTarget),
        onkeydown: (e) => {
          if (!(e.key in keys)) return;
          e.preventDefault();
          point(e.currentTarget, (e.currentTarget.jq.at ?? columns.length) + keys[e.key]);
        },
      },
      h(
        "svg",
        { width: "100%", height, "aria-hidden": "true" },
        h("rect.cursor", { x: 0, y: 0, width: 0, height, "data-opaque": "" }),
        lines.map(([at]) => h("line.grid", { x1: 0, x2: "100%", y1: at, y2: at })),
        h("line.base", { x1: 0, x2: "100%", y1: height - 0.5, y2: height - 0.5 }),
        marks,
        lines.map(([at, text]) => h("text.tick", { x: -6, y: at + 3 }, text)),
      ),
    ),
    h(
      "div.axis",
      { "aria-hidden": "true" },
      [0, 0.5, 1].map((part) => {
        const column = columns[Math.round(part * (columns.length - 1))];
        return h("span", {}, column ? label(column) : "");
      }),
    ),
    h(
      "ul.legend",
      {},
      legend.map((s) => h("li", {}, h("span.dot", { class: `fill-${s.state}` }), s.name)),
    ),
  );
}

const percent = (i, columns) => `${((100 * i) / columns.length).toFixed(3)}%`;

// niceTop returns the next number that people like to read.
function niceTop(n) {
  const size = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 4, 5, 6, 8, 10].map((k) => k * size).find((top) => top >= n);
}
