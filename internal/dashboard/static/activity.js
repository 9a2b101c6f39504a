// Throughput, failures and times of the last hour or day, as charts and as numbers.

import { h } from "./dom.js";
import { get, now, orNull } from "./api.js";
import { addHistograms, milliseconds, percentile } from "./format.js";
import { bars, ranges } from "./chart.js";

export const lengths = {
  hour: { name: "last hour", last: "1h", step: "1m", ms: 3600000, stepMs: 60000 },
  day: { name: "last day", last: "24h", step: "20m", ms: 86400000, stepMs: 1200000 },
};

export const lengthOf = (query) => lengths[query.get("over")] ?? lengths.hour;

// loadSteps reads the activity step by step, of all queues or of one. It returns null if the store keeps none.
export const loadSteps = (length, queue) => orNull(get("v1/activity", { last: length.last, step: length.step, queue }));

// loadSums reads the activity of the whole time, for each queue or each kind.
export const loadSums = (length, by, queue) => orNull(get("v1/activity", { last: length.last, by, queue }));

const bounds = (answer) => answer.bounds.map(milliseconds);

export const failed = (a) => (a.retried ?? 0) + (a.dead ?? 0);
export const finished = (a) => (a.succeeded ?? 0) + failed(a);

// sum adds up the spans of an answer.
export function sum(spans) {
  const all = { succeeded: 0, retried: 0, dead: 0, snoozed: 0, recovered: 0, expired: 0, stale: 0, waited: [], ran: [] };
  for (const one of spans ?? []) {
    for (const name of Object.keys(all)) {
      if (Array.isArray(all[name])) all[name] = addHistograms(all[name], one[name]);
      else all[name] += one[name] ?? 0;
    }
  }
  return all;
}

// quantile returns a percentile of "waited" or "ran" in milliseconds, or null.
export const quantile = (answer, a, field, q) => (answer && a ? percentile(a[field], bounds(answer), q) : null);

// charts draws the three charts of the steps.
export function charts(answer, length) {
  if (!answer) return h("p.quiet", {}, "This store keeps no statistics.");
  const end = Math.floor(now() / length.stepMs) * length.stepMs;
  const count = Math.round(length.ms / length.stepMs);
  const at = new Map(answer.spans.map((s) => [Date.parse(s.at), s]));
  const columns = Array.from({ length: count }, (_, i) => {
    const time = end - (count - 1 - i) * length.stepMs;
    return { at: time, span: at.get(time) ?? {} };
  });
  const limits = bounds(answer);
  const range = (field) =>
    columns.map((c) => ({
      at: c.at,
      low: percentile(c.span[field], limits, 0.5),
      high: percentile(c.span[field], limits, 0.95),
    }));
  return h(
    "div.charts",
    {},
    bars({
      title: length.step === "1m" ? "Runs each minute" : "Runs each 20 minutes",
      columns: columns.map((c) => ({ at: c.at, values: [c.span.succeeded ?? 0, c.span.retried ?? 0, c.span.dead ?? 0] })),
      series: [
        { name: "succeeded", state: "succeeded" },
        { name: "retried", state: "retrying" },
        { name: "dead", state: "dead" },
      ],
    }),
    ranges({ title: "Waiting time", columns: range("waited") }),
    ranges({ title: "Running time", columns: range("ran") }),
  );
}
