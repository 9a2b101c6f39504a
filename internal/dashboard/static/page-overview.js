// The first page: which queue is behind, since when and why, what fails, and what comes next.

import { h } from "./dom.js";
import { get, may, now, orNull, session } from "./api.js";
import { askPause } from "./actions.js";
import { dayTime, exact, number, plural, short, shortTime, since, time, zone } from "./format.js";
import { charts, failed, lengthOf, loadSteps, loadSums, sum } from "./activity.js";
import { link, notice, section, tabs } from "./parts.js";
import { describe, loadRunning, queueTable } from "./queue-state.js";

export const title = () => "Overview";
export const live = true;

// Failures are read every five seconds only: the server reads up to 1,000 jobs for an answer.
let failuresRead = { at: -Infinity, last: "", session: "", answer: null };

async function loadFailures(length) {
  if (failuresRead.last !== length.last || failuresRead.session !== session.csrf || performance.now() - failuresRead.at > 4900) {
    const asked = session.csrf;
    const answer = await orNull(get("v1/errors", { last: length.last }));
    failuresRead = { at: performance.now(), last: length.last, session: asked, answer };
  }
  return failuresRead.answer;
}

export async function load({ query }) {
  const length = lengthOf(query);
  const [overview, workers, running, steps, sums, errors, schedules] = await Promise.all([
    get("v1/overview"),
    orNull(get("v1/workers", { limit: 500 })),
    loadRunning(),
    loadSteps(length),
    loadSums(length, "queue"),
    loadFailures(length),
    orNull(get("v1/schedules", { limit: 500 })),
  ]);
  return { overview, workers: workers?.workers ?? [], running, steps, sums, errors, schedules: schedules?.schedules ?? [], length };
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
    verdicts(queues, data.workers, page),
    tiles(data),
    charts(data.steps, length),
    section("Queues", queueTable(queues, data, page)),
    h(
      "div.columns",
      {},
      section(`What failed most in the ${length.name}`, failures(data.errors, length)),
      section(`What runs next by schedule (${zone()})`, upcoming(data.schedules)),
    ),
  ];
}

// verdicts says what needs somebody, worst first.
function verdicts(queues, workers, page) {
  const held = queues.filter((q) => q.behind || (q.paused && q.oldest_due)).sort((a, b) => b.waited - a.waited);
  const stopped = queues.filter((q) => q.paused && !held.includes(q));
  const silent = workers.filter((w) => w.stale && w.queues?.length);
  if (!held.length && !stopped.length && !silent.length)
    return notice("good", h("strong", {}, "All queues keep up."), " No job has been due for more than 30 seconds.");
  return h(
    "div.verdicts",
    { role: "region", "aria-label": "What needs attention" },
    held
      .slice(0, 8)
      .map((q) =>
        notice(
          q.paused ? "held" : "bad",
          h("strong", {}, link(`#/queues/${encodeURIComponent(q.queue)}`, q.queue), q.paused ? " is paused" : " is behind"),
          ": its oldest due job has waited ",
          since(q.oldest_due),
          ` (since ${dayTime(q.oldest_due)} ${zone()})`,
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
    silent
      .slice(0, 4)
      .map((w) =>
        notice(
          "held",
          h("strong", {}, link(`#/workers/${encodeURIComponent(w.name)}`, w.name), " is silent"),
          ": this worker reported last ",
          time(w.beat_at),
          ". Its jobs go to other workers when their leases end.",
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
  if (queue.cure === "policy") return link(`#/queues/${encodeURIComponent(queue.queue)}`, "See its policy");
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
    all.blocked ? tile("#/jobs?state=blocked", all.blocked, "blocked", "blocked", "wait for other jobs") : null,
    tile("#/jobs?state=ready", known ? (all.ready ?? 0) : null, "ready", "ready"),
    tile("#/jobs?state=in_flight", known ? (all.in_flight ?? 0) : null, "in flight", "in_flight"),
    tile("#/jobs?state=retrying", known ? (all.retrying ?? 0) : null, "retrying", "retrying"),
    tile("#/jobs?state=dead", known ? (all.dead ?? 0) : null, "dead now", "dead"),
    sums ? tile("#/jobs?state=succeeded", done.succeeded, `runs succeeded, ${length.name}`, "succeeded") : null,
    sums
      ? tile(
          `#/failures?last=${length.last}`,
          failed(done),
          `runs failed, ${length.name}`,
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

// failures counts jobs and not runs: those that are still retrying or dead.
function failures(errors, length) {
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
            link(`#/failures?${new URLSearchParams({ queue: g.queue, kind: g.kind, last: length.last })}`, g.error || "no error text"),
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
          h("span.rank", { title: exact(s.next_at) }, shortTime(s.next_at)),
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
