// The workers, and what runs where since when.

import { h } from "./dom.js";
import { get } from "./api.js";
import { badge, phaseOf, plural, since, time } from "./format.js";
import { facts, link, section, table } from "./parts.js";

export const title = ({ params }) => (params.length ? `Worker ${params[0]}` : "Workers");
export const live = true;

const atOnce = 100;

export async function load({ params }) {
  const [name] = params;
  const [workers, jobs] = await Promise.all([
    get("v1/workers", { name, limit: 500 }),
    get("v1/jobs", { state: "in_flight", worker: name, limit: atOnce, documents: "false" }),
  ]);
  return { workers: workers.workers, jobs: jobs.jobs, more: Boolean(jobs.next) };
}

export function view(data, page) {
  return page.params.length ? one(data, page.params[0]) : all(data);
}

function all({ workers, jobs, more }) {
  return [
    h("div.heading", {}, h("h1", { tabindex: "-1" }, "Workers")),
    workers.length
      ? table(
          [["Worker"], ["State", "self"], ["Busy", "n"], [""], ["Queues", "wide"], ["Host"], ["Last report", "n"]],
          workers.map((w) => [
            w.name,
            [
              link(`#/workers/${encodeURIComponent(w.name)}`, w.name),
              state(w),
              w.queues?.length ? `${w.running} of ${w.slots}` : "",
              !w.queues?.length || w.stale
                ? null
                : h("meter", {
                    min: "0",
                    max: String(w.slots || 1),
                    value: String(w.running),
                    "aria-label": `slots of ${w.name} that are busy`,
                  }),
              queuesOf(w),
              [w.host, w.pid ? ` · ${w.pid}` : ""],
              time(w.beat_at),
            ],
          ]),
        )
      : h("p.quiet", {}, "No worker has reported in the last day. Workers that only use the HTTP API need not report."),
    section("Running now", running(jobs, more, true)),
  ];
}

// queuesOf lists the queues of a worker. A server without queues only recovers jobs and fires schedules.
const queuesOf = (w) =>
  w.queues?.length
    ? w.queues.map((q, i) => [i ? ", " : "", link(`#/queues/${encodeURIComponent(q)}`, q)])
    : h("span.quiet", {}, "none: recovers jobs, fires schedules");

const state = (w) => (w.stale ? badge("lost", "silent") : badge("succeeded", "alive"));

function one({ workers, jobs, more }, name) {
  const [w] = workers;
  return [
    h("div.heading", {}, h("h1", { tabindex: "-1" }, name), w ? state(w) : null),
    w
      ? facts([
          ["Busy", `${w.running} of ${plural(w.slots, "slot")}`],
          ["Host", w.host],
          ["Process", w.pid],
          ["Queues", queuesOf(w)],
          ["Last report", [time(w.beat_at), w.stale ? ". It has stopped reporting: its jobs are recovered when their leases expire." : ""]],
        ])
      : h("p.quiet", {}, "It is not in the list of workers: it has stopped, or it only uses the HTTP API."),
    section("Running now", running(jobs, more, false)),
    h("p", {}, link(`#/jobs?${new URLSearchParams({ worker: name })}`, "All jobs that it had last")),
  ];
}

function running(jobs, more, withWorker) {
  if (!jobs.length) return h("p.quiet", {}, "Nothing.");
  const oldest = [...jobs].sort((a, b) => Date.parse(a.claimed_at) - Date.parse(b.claimed_at));
  return [
    table(
      [["Job"], ["Kind"], ["Queue"], withWorker ? ["Worker", "wide"] : null, ["For", "n"], ["Attempt", "n"], ["Lease ends", "n"]].filter(
        Boolean,
      ),
      oldest.map((j) => [
        j.id,
        [
          [link(`#/jobs/${j.id}`, j.id), phaseOf(j) === "in_flight" ? "" : badge(phaseOf(j))],
          h("span.name", {}, j.kind),
          link(`#/queues/${encodeURIComponent(j.queue)}`, j.queue),
          withWorker ? link(`#/workers/${encodeURIComponent(j.worker)}`, j.worker) : null,
          since(j.claimed_at),
          `${j.attempts} of ${j.max_retries + 1}`,
          time(j.lease_expires_at),
        ].filter((c) => c !== null),
      ]),
    ),
    more ? h("p.quiet", {}, `The newest ${atOnce} jobs are shown. `, link("#/jobs?state=in_flight", "See all")) : null,
  ];
}
