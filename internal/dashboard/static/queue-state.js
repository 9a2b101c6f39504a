// How queues are doing, and why.

import { h } from "./dom.js";
import { may, now } from "./api.js";
import { askPause } from "./actions.js";
import { badge, plural, short, since, span } from "./format.js";
import { failed, finished, quantile } from "./activity.js";
import { link, table } from "./parts.js";

// A queue is behind if its oldest due job has waited longer than this.
const patience = 30000;

// describe says how a queue is doing, and why.
export function describe(queue, { workers, sums }) {
  const activity = sums?.spans.find((s) => s.queue === queue.queue);
  const waited = queue.oldest_due ? now() - Date.parse(queue.oldest_due) : 0;
  const behind = waited > patience;
  return { ...queue, activity, waited, behind, ...reason(queue, behind, workers, activity, sums) };
}

function reason(queue, behind, workers, activity, sums) {
  if (queue.paused) return { why: "it is paused", cure: "resume" };
  if (!behind) return { why: "" };
  const mine = workers.filter((w) => w.queues?.includes(queue.queue));
  const alive = mine.filter((w) => !w.stale);
  if (!alive.length) {
    return {
      why: mine.length
        ? `its ${mine.length === 1 ? "worker has" : "workers have"} stopped reporting`
        : "no worker reports that it serves it",
      cure: "workers",
    };
  }
  const slots = alive.reduce((all, w) => all + w.slots, 0);
  const running = alive.reduce((all, w) => all + w.running, 0);
  const runs = activity ? finished(activity) : 0;
  if (runs > 4 && failed(activity) > runs / 2)
    return { why: `${Math.round((100 * failed(activity)) / runs)} % of its runs fail`, cure: "failures" };
  if (running >= slots) {
    const median = quantile(sums, activity, "ran", 0.5);
    return {
      why: `all ${plural(slots, "slot")} of its ${plural(alive.length, "worker")} are busy${median ? `, half of the runs take more than ${span(median)}` : ""}`,
      cure: "workers",
    };
  }
  return { why: `its workers have free slots (${running} of ${slots} busy) but do not keep up`, cure: "workers" };
}

// queueTable is the table of all queues.
export function queueTable(queues, { sums, length }, page) {
  if (!queues.length) return h("p.quiet", {}, "No queue has jobs yet. ", may.enqueue() ? link("#/enqueue", "Enqueue the first one") : null);
  const ms = (v) => (v === null ? "–" : span(v));
  const cell = (q, state) => {
    const n = q.jobs?.[state] ?? (q.jobs ? 0 : null);
    return n ? link(`#/jobs?${new URLSearchParams({ state, queue: q.queue })}`, short(n)) : n === null ? "–" : "0";
  };
  const worst = [...queues].sort((a, b) => b.behind - a.behind || b.waited - a.waited || a.queue.localeCompare(b.queue));
  return table(
    [
      ["Queue"],
      ["Oldest due", "n"],
      ["Ready", "n"],
      ["In flight", "n"],
      ["Retrying", "n"],
      ["Dead", "n"],
      ["Done", "n", `runs that succeeded in the ${length.name}`],
      ["Failed", "n", `runs that failed in the ${length.name}`],
      ["Wait p95", "n", "95 % of the jobs waited less than this"],
      ["Run p95", "n", "95 % of the runs took less than this"],
      [may.operate() ? "Action" : ""],
    ],
    worst.map((q) => [
      q.queue,
      [
        h(
          "span",
          {},
          link(`#/queues/${encodeURIComponent(q.queue)}`, q.queue),
          q.paused ? [" ", badge("paused", "paused")] : q.behind ? [" ", badge("dead", "behind")] : null,
        ),
        q.oldest_due ? since(q.oldest_due) : "–",
        cell(q, "ready"),
        cell(q, "in_flight"),
        cell(q, "retrying"),
        cell(q, "dead"),
        sums ? short(q.activity?.succeeded ?? 0) : "–",
        sums ? short(q.activity ? failed(q.activity) : 0) : "–",
        ms(quantile(sums, q.activity, "waited", 0.95)),
        ms(quantile(sums, q.activity, "ran", 0.95)),
        may.operate()
          ? h(
              "button.small",
              {
                type: "button",
                onclick: () => askPause(q.queue, !q.paused, page.refresh),
                "aria-label": `${q.paused ? "Resume" : "Pause"} queue ${q.queue}`,
              },
              q.paused ? "Resume" : "Pause",
            )
          : null,
      ],
    ]),
  );
}
