// The first page: which queue is behind, since when and why, what fails, and what comes next.

import { h } from "./dom.js";
import { get, may, now, orNull } from "./api.js";
import { askPause } from "./actions.js";
import { clockTime, dayTime, number, plural, short, since, time } from "./format.js";
import { charts, failed, lengthOf, loadSteps, loadSums, sum } from "./activity.js";
import { link, notice, section, tabs } from "./parts.js";
import { describe, queueTable } from "./queue-state.js";

export const title = () => "Overview";
export const live = true;

export async function load({ query }) {
  const length = lengthOf(query);
  const [overview, workers, steps, sums, errors, schedules] = await Promise.all([
    get("v1/overview"),
    orNull(get("v1/workers", { limit: 500 })),
    loadSteps(length),
    loadSums(length, "queue"),
    orNull(get("v1/errors", { last: length.last })),
    orNull(get("v1/schedules", { limit: 500 })),
  ]);
  return { overview, workers: workers?.workers ?? [], steps, sums, errors, schedules: schedules?.schedules ?? [], length };
}

export function view(data, page) {
  const { overview, length } = data;
  const queues = overview.queues.map((q) => describe(q, data));
  return [
    h(
      "div.heading",
      {},
      h("h1", { tabindex: "-1" }, "Overview"),
      countNote(overview),
      tabs(
        "Time",
        [
          ["hour", "last hour"],
          ["day", "last day"],
        ],
        page.query.get("over") ?? "hour",
        (over) => page.link({ over: over === "hour" ? null : over }),
      ),
    ),
    verdicts(queues, page),
    tiles(data),
    charts(data.steps, length),
    section("Queues", queueTable(queues, data, page)),
    h(
      "div.columns",
      {},
      section(`What failed most in the ${length.name}`, failures(data.errors)),
      section("What runs next by schedule", upcoming(data.schedules)),
    ),
  ];
}

// verdicts says what needs somebody, worst first.
function verdicts(queues, page) {
  const held = queues.filter((q) => q.behind || (q.paused && q.oldest_due)).sort((a, b) => b.waited - a.waited);
  const stopped = queues.filter((q) => q.paused && !held.includes(q));
  if (!held.length && !stopped.length)
    return notice("good", h("strong", {}, "All queues keep up."), " No job has been due for more than 30 seconds.");
  return h(
    "div.verdicts",
    { role: "region", "aria-label": "What needs attention" },
    held
      .slice(0, 8)
      .map((q) =>
        notice(
          "bad",
          h("strong", {}, link(`#/queues/${encodeURIComponent(q.queue)}`, q.queue), q.paused ? " is paused" : " is behind"),
          ": its oldest due job has waited ",
          since(q.oldest_due),
          ` (since ${dayTime(q.oldest_due)})`,
          q.why && !q.paused ? `, because ${q.why}. ` : ". ",
          cure(q, page),
        ),
      ),
    held.length > 8 ? h("p.quiet", {}, `And ${plural(held.length - 8, "more queue")}.`) : null,
    stopped
      .slice(0, 8)
      .map((q) =>
        notice(
          "calm",
          h("strong", {}, link(`#/queues/${encodeURIComponent(q.queue)}`, q.queue), " is paused"),
          ". No job waits in it. ",
          cure(q, page),
        ),
      ),
  );
}

function cure(queue, page) {
  if (queue.cure === "resume")
    return may.operate()
      ? h("button", { type: "button", onclick: () => askPause(queue.queue, false, page.refresh) }, `Resume ${queue.queue}`)
      : null;
  if (queue.cure === "failures") return link(`#/failures?queue=${encodeURIComponent(queue.queue)}`, "See what fails");
  if (queue.cure === "workers") return link("#/workers", "See the workers");
  return null;
}

function countNote(overview) {
  if (!overview.counted_at)
    return h("p.quiet", {}, overview.count_error ? `The jobs cannot be counted: ${overview.count_error}` : "The jobs are being counted …");
  const old = now() - Date.parse(overview.counted_at) > 10000;
  return old ? h("p.quiet", {}, "Counts of ", time(overview.counted_at)) : null;
}

function tiles({ overview, sums, length }) {
  const all = {};
  for (const q of overview.queues) for (const [state, n] of Object.entries(q.jobs ?? {})) all[state] = (all[state] ?? 0) + n;
  const done = sum(sums?.spans);
  const known = Boolean(overview.counted_at);
  const tile = (href, n, label, state, note) =>
    h(
      "a.tile",
      { href, class: state ? `tile-${state}` : "" },
      h("span.big", { title: typeof n === "number" ? number(n) : "" }, n === null ? "–" : short(n)),
      h("span", {}, label),
      note ? h("small", {}, note) : null,
    );
  const w = overview.workers;
  return h(
    "div.tiles",
    {},
    tile("#/jobs?state=ready", known ? (all.ready ?? 0) : null, "ready", "ready"),
    tile("#/jobs?state=in_flight", known ? (all.in_flight ?? 0) : null, "in flight", "in_flight"),
    tile("#/jobs?state=retrying", known ? (all.retrying ?? 0) : null, "retrying", "retrying"),
    tile("#/jobs?state=dead", known ? (all.dead ?? 0) : null, "dead", "dead"),
    sums ? tile("#/jobs?state=succeeded", done.succeeded, `succeeded, ${length.name}`, "succeeded") : null,
    sums
      ? tile(
          "#/failures",
          failed(done),
          `failed, ${length.name}`,
          "failed",
          done.recovered ? `${plural(done.recovered, "lease")} recovered` : null,
        )
      : null,
    w
      ? tile(
          "#/workers",
          w.running,
          `of ${plural(w.slots, "slot")} busy`,
          "",
          w.stale ? `${plural(w.stale, "worker")} silent` : plural(w.alive, "worker"),
        )
      : null,
  );
}

function failures(errors) {
  if (!errors) return h("p.quiet", {}, "This token cannot read failures.");
  if (!errors.groups.length) return h("p.quiet", {}, "Nothing that is still retrying or dead.");
  return h(
    "ol.ranking",
    {},
    errors.groups
      .slice(0, 6)
      .map((g) =>
        h(
          "li",
          {},
          h("span.rank", {}, number(g.jobs)),
          h(
            "span",
            {},
            link(`#/failures?${new URLSearchParams({ queue: g.queue, kind: g.kind })}`, g.error || "no error text"),
            h("small", {}, `${g.kind} in ${g.queue}, last `, time(g.newest.at)),
          ),
        ),
      ),
  );
}

function upcoming(schedules) {
  const next = schedules.filter((s) => s.next_at && !s.paused).sort((a, b) => Date.parse(a.next_at) - Date.parse(b.next_at));
  if (!next.length) return h("p.quiet", {}, "No schedule is set.");
  return h(
    "ol.ranking",
    {},
    next
      .slice(0, 6)
      .map((s) =>
        h(
          "li",
          {},
          h("span.rank", { title: dayTime(s.next_at) }, clockTime(s.next_at)),
          h(
            "span",
            {},
            link(`#/schedules/${encodeURIComponent(s.name)}`, s.name),
            h("small", {}, `${s.job.kind} in ${s.job.queue ?? "default"}, `, time(s.next_at)),
          ),
        ),
      ),
  );
}
