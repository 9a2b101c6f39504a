// All queues, or one with its charts and settings.

import { h } from "./dom.js";
import { get, may, orNull } from "./api.js";
import { askPause, askPolicy } from "./actions.js";
import { atRate, badge, dayTime, number, since, stateName, states, zone } from "./format.js";
import { charts, lengthOf, loadSteps, loadSums } from "./activity.js";
import { facts, link, notice, section, tabs } from "./parts.js";
import { describe, loadRunning, queueTable } from "./queue-state.js";

export const title = ({ params }) => (params.length ? `Queue ${params[0]}` : "Queues");
export const live = true;

export async function load({ params, query }) {
  const [name] = params;
  const length = lengthOf(query);
  const [overview, workers, sums, running, steps, policy] = await Promise.all([
    get("v1/overview"),
    orNull(get("v1/workers", { limit: 500 })),
    loadSums(length, "queue", name),
    loadRunning(name),
    name === undefined ? null : loadSteps(length, name),
    name === undefined ? null : orNull(get(`v1/queues/${encodeURIComponent(name)}/policy`)),
  ]);
  return { overview, workers: workers?.workers ?? [], sums, running, steps, policy, length };
}

export function view(data, page) {
  const heading = (name, ...more) =>
    h(
      "div.heading",
      {},
      h("h1", { tabindex: "-1" }, name),
      more,
      tabs(
        "Time",
        [
          ["hour", "last hour"],
          ["day", "last day"],
        ],
        page.query.get("over") ?? "hour",
        (over) => page.link({ over: over === "hour" ? null : over }),
      ),
    );
  if (!page.params.length)
    return [
      heading("Queues"),
      queueTable(
        data.overview.queues.map((q) => describe(q, data)),
        data,
        page,
      ),
    ];
  return one(data, page, heading);
}

function one(data, page, heading) {
  const [name] = page.params;
  const queue = describe(data.overview.queues.find((q) => q.queue === name) ?? { queue: name, jobs: {} }, data);
  const { policy } = data;
  return [
    heading(
      name,
      queue.paused ? badge("paused", "paused") : queue.behind ? badge("dead", "behind") : null,
      may.operate()
        ? h(
            "div.buttons",
            {},
            h(
              "button.small",
              {
                type: "button",
                "data-action": queue.paused ? "resume" : "pause",
                onclick: () => askPause(name, !queue.paused, page.refresh),
              },
              queue.paused ? "Resume" : "Pause",
            ),
          )
        : null,
    ),
    queue.behind || queue.paused
      ? notice(
          queue.paused ? "held" : "bad",
          queue.oldest_due
            ? ["Its oldest due job has waited ", since(queue.oldest_due), ` (since ${dayTime(queue.oldest_due)} ${zone()})`]
            : "No job waits",
          queue.why ? `, because ${queue.why}.` : ".",
        )
      : null,
    charts(data.steps, data.length),
    h(
      "div.columns",
      {},
      section(
        "Jobs",
        facts(
          states.map((s) => [
            stateName(s),
            queue.jobs ? link(`#/jobs?${new URLSearchParams({ state: s, queue: name })}`, number(queue.jobs[s] ?? 0)) : "–",
          ]),
        ),
      ),
      policy
        ? section(
            "Policy",
            facts([
              ["In flight at once", policy.max_in_flight ? number(policy.max_in_flight) : "any number, the default"],
              ["In flight for each limit key", policy.max_per_key ? number(policy.max_per_key) : "any number, the default"],
              ["Limit keys take turns", policy.fair ? "yes" : "no, the default"],
              ["Jobs of a limit key run in order", policy.ordered ? "yes" : "no, the default"],
              ["Rate of claims", policy.rate ? atRate(policy.rate) : "any number, the default"],
              ["Succeeded jobs are kept", kept(policy.retain_succeeded, "24 hours, the default")],
              ["Cancelled jobs are kept", kept(policy.retain_cancelled, "7 days, the default")],
              ["Dead jobs are kept", kept(policy.retain_dead, "for ever, the default")],
            ]),
            policy.owner ? h("p.quiet", {}, declared(policy)) : null,
            may.operate()
              ? h(
                  "button.small",
                  { type: "button", "data-action": "policy", onclick: () => askPolicy(name, policy, page.refresh) },
                  "Change…",
                )
              : null,
          )
        : null,
      section("Workers", workersOf(name, data.workers)),
    ),
  ];
}

const declared = ({ owner, declared: version = 0 }) =>
  `Declared by ${owner}, version ${version}; a change here stays until it declares a higher version.`;

const kept = (text, byDefault) => (!text ? byDefault : text === "keep" ? "for ever" : text);

function workersOf(queue, workers) {
  const mine = workers.filter((w) => w.queues?.includes(queue));
  if (!mine.length) return h("p.quiet", {}, "No worker reports that it serves this queue.");
  return facts(
    mine.map((w) => [
      link(`#/workers/${encodeURIComponent(w.name)}`, w.name),
      w.stale ? badge("lost", "silent") : `${w.running} of ${w.slots} slots busy`,
    ]),
  );
}
