// Numbers, spans of time and states as text.

import { h } from "./dom.js";
import { now } from "./api.js";

export const states = ["blocked", "ready", "in_flight", "retrying", "dead", "succeeded", "cancelled"];

const stateNames = {
  blocked: "blocked",
  ready: "ready",
  in_flight: "in flight",
  retrying: "retrying",
  dead: "dead",
  succeeded: "succeeded",
  cancelled: "cancelled",
};

export const stateName = (state) => stateNames[state] ?? state;

export const phaseOf = (job) => (job.state === "failed" ? (job.retry_at ? "retrying" : "dead") : job.state);

const integer = new Intl.NumberFormat("en");

export const number = (n) => integer.format(n ?? 0);

export const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;

// short writes large numbers with a unit, for small places.
export function short(n) {
  if (n < 10000) return number(n);
  if (n < 1e6) return `${(n / 1e3).toFixed(n < 1e5 ? 1 : 0)}k`;
  return `${(n / 1e6).toFixed(n < 1e8 ? 1 : 0)}M`;
}

const units = [
  ["d", 86400000],
  ["h", 3600000],
  ["min", 60000],
  ["s", 1000],
];

// span writes a duration in milliseconds with its two largest units.
export function span(ms) {
  ms = Math.max(0, ms);
  if (ms < 1000) return `${ms < 10 && ms > 0 ? ms.toFixed(ms < 1 ? 2 : 1).replace(/\.?0+$/, "") : Math.round(ms)} ms`;
  if (ms < 10000) return `${(ms / 1000).toFixed(1).replace(".0", "")} s`;
  ms = Math.round(ms / 1000) * 1000;
  const at = units.findIndex(([, size]) => ms >= size);
  const [unit, size] = units[at];
  const whole = Math.floor(ms / size);
  const below = units[at + 1];
  const rest = below ? Math.floor((ms % size) / below[1]) : 0;
  return rest && whole < 10 ? `${whole} ${unit} ${rest} ${below[0]}` : `${whole} ${unit}`;
}

// milliseconds reads a duration as the API writes it, such as 1m30s.
export function milliseconds(text) {
  const sizes = { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1000, m: 60000, h: 3600000 };
  let sum = 0;
  for (const [, n, unit] of String(text ?? "").matchAll(/([\d.]+)(ns|us|µs|ms|s|m|h)/g)) sum += Number(n) * sizes[unit];
  return sum;
}

// atRate writes a rate of claims.
export const atRate = ({ n, per }) => `${plural(n, "job")} in ${span(milliseconds(per))}`;

// seconds writes a duration that grows on the page, so without parts of a second.
export const seconds = (ms) => span(Math.floor(Math.max(0, ms) / 1000) * 1000).replace("0 ms", "0 s");

// relative says how far a time is from now.
export function relative(ms) {
  const away = ms - now();
  if (Math.abs(away) < 1000) return "now";
  return away < 0 ? `${seconds(-away)} ago` : `in ${seconds(away)}`;
}

const exactFormat = new Intl.DateTimeFormat("en-GB", {
  weekday: "short",
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZoneName: "short",
});
const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const dayFormat = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });

export const exact = (at) => exactFormat.format(new Date(at));
// zone is the name of the browser's time zone.
export const zone = () => exactFormat.formatToParts(new Date(now())).find((part) => part.type === "timeZoneName").value;

export const clockTime = (at) => clockFormat.format(new Date(at));

// dayTime is a time of the next or the last days.
export function dayTime(at) {
  const date = new Date(at);
  const today = new Date(now());
  return date.toDateString() === today.toDateString() ? clockTime(at) : `${dayFormat.format(date)}, ${clockTime(at)}`;
}

// shortTime is a time of the next 24 hours, or else a day.
const shortDay = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
export const shortTime = (at) => (Date.parse(at) - now() < 86400000 ? clockTime(at) : shortDay.format(new Date(at)));

// time shows a time relative to now, and the exact one on hover. It grows older by itself.
export function time(text) {
  if (!text) return "–";
  return h("time", { datetime: text, title: exact(text), "data-relative": "" }, relative(Date.parse(text)));
}

// since shows how long ago a time was, without a word behind it.
export function since(text) {
  if (!text) return "–";
  return h("time", { datetime: text, title: exact(text), "data-since": "" }, seconds(now() - Date.parse(text)));
}

// tick lets the times on the page grow older.
export function tick() {
  for (const element of document.querySelectorAll("time[data-relative], time[data-since]")) {
    const at = Date.parse(element.dateTime);
    const text = element.dataset.since === undefined ? relative(at) : seconds(now() - at);
    if (element.textContent !== text) element.textContent = text;
  }
}

// badge shows a state in its colour.
export const badge = (state, text) => h("span.badge", { class: `is-${state}` }, text ?? stateName(state));

export const firstLine = (text) => (text ?? "").split("\n", 1)[0];

// percentile returns the q-quantile of a histogram in milliseconds, or null if it is empty. Within a class it assumes that values
// are spread evenly.
export function percentile(counts, bounds, q) {
  const all = (counts ?? []).reduce((sum, n) => sum + n, 0);
  if (!all) return null;
  let left = q * all;
  for (let i = 0; i < counts.length; i++) {
    if (left <= counts[i] && counts[i] > 0) {
      const top = bounds[Math.min(i, bounds.length - 1)];
      const bottom = i === 0 ? 0 : bounds[i - 1];
      if (i >= bounds.length) return top;
      return bottom + (top - bottom) * (left / counts[i]);
    }
    left -= counts[i];
  }
  return bounds.at(-1);
}

export function addHistograms(a, b) {
  const out = [...(a ?? [])];
  (b ?? []).forEach((n, i) => {
    out[i] = (out[i] ?? 0) + n;
  });
  return out;
}
