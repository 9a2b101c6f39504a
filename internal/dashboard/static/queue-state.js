// How queues are doing, and why.

import { h } from "./dom.js";
import { get, may, now, orNull } from "./api.js";
import { askPause } from "./actions.js";
import { atRate, badge, plural, seconds, short, since, span } from "./format.js";
import { failed, finished, quantile } from "./activity.js";
import { link, table } from "./parts.js";

// A queue is behind if its oldest due job has waited longer than this.
const patience = 30000;

// loadRunning reads jobs that are in flight, for the longest runs. Of many it reads the newest.
export const loadRunning = async (queue) =>
  (await orNull(get("v1/jobs", { state: "in_flight", queue, limit: 200, documents: "false" })))?.jobs ?? [];

// describe says how a queue is doing, and why.
export function describe(queue, { workers, sums, running }) {
  const activity = sums?.spans.find((s) => s.queue === queue.queue);
  const waited = queue.oldest_due ? now() - Date.parse(queue.oldest_due) : 0;
  const behind = waited > patience;
  return { ...queue, activity, waited, behind, ...reason(queue, behind, workers, activity, sums, running) };
}

function reason(queue, behind, workers, activity, sums, jobs) {
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
  if (queue.max_in_flight && queue.jobs?.in_flight >= queue.max_in_flight) {
    return {
      why: `its policy lets ${plural(queue.max_in_flight, "job")} be in flight at once${pace(queue, activity, sums, jobs)}`,
      cure: "policy",
    };
  }
  if (running >= slots) {
    return {
      why: `all ${plural(slots, "slot")} of its ${plural(alive.length, "worker")} are busy${pace(queue, activity, sums, jobs)}`,
      cure: "workers",
    };
  }
  const free = `its workers have free slots (${running} of ${slots} busy)`;
  // Nobody counts the jobs that wait for their key or for their queue's rate, so this is a guess.
  const limits = [
    queue.max_per_key ? `${plural(queue.max_per_key, "job")} in flight for each limit key` : "",
    queue.rate ? `${atRate(queue.rate)} claimed at most` : "",
  ].filter(Boolean);
  if (limits.length) return { why: `${free}: its policy, ${limits.join(" and ")}, may hold jobs back`, cure: "policy" };
  return { why: `${free} but do not keep up`, cure: "workers" };
}

// pace compares the longest run with those that have ended, so that a run that hangs stands out.
function pace(queue, activity, sums, jobs) {
  const longest = Math.max(0, ...jobs.filter((j) => j.queue === queue.queue).map((j) => now() - Date.parse(j.claimed_at)));
  const median = quantile(sums, activity, "ran", 0.5);
  const usual = median ? `half of the runs took less than ${span(median)}` : "no run has ended";
  return longest ? `: the longest run has taken ${seconds(longest)} so far, and ${usual}` : `, and ${usual}`;
}

// queueTable is the table of all queues.
export function queueTable(queues, { sums, length }, page) {
  if (!queues.length) return h("p.quiet", {}, "No queue has jobs yet. ", may.enqueue() ? link("#/enqueue", "Enqueue the first one") : null);
  const ms = (v) => (v === null ? "–" : span(v));
  const cell = (q, state) => {
    const n = q.jobs?.[state] ?? (q.jobs ? 0 : null);
    return n ? link(`#/jobs?${new URLSearchParams({ state, queue: q.queue })}`, short(n)) : n === null ? "–" : "0";
  };
  const blocked = queues.some((q) => q.jobs?.blocked); // most stores have no such jobs, so the column is not always there
  const worst = [...queues].sort((a, b) => b.behind - a.behind || b.waited - a.waited || a.queue.localeCompare(b.queue));
  return table(
    [
      ["Queue"],
      ["Oldest due", "n"],
      ...(blocked ? [["Blocked", "n", "jobs that wait for other jobs"]] : []),
      ["Ready", "n"],
      ["In flight", "n"],
      ["Retrying", "n"],
      ["Dead", "n"],
      [`Done ${length.last}`, "n", `runs that succeeded in the ${length.name}`],
      [`Failed ${length.last}`, "n", `runs that failed in the ${length.name}`],
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
        ...(blocked ? [cell(q, "blocked")] : []),
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
