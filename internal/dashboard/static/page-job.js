// One job: what it is doing, who has had it, and how each attempt ended.

import { h } from "./dom.js";
import { get, may, now } from "./api.js";
import { askOne, askReschedule, jobActions } from "./actions.js";
import { badge, exact, phaseOf, plural, since, span, stateName, time } from "./format.js";
import { flow, groupPath } from "./flow.js";
import { documentOf, duration, errorText, facts, link, section, took } from "./parts.js";

export const title = ({ params }) => `Job ${params[0]}`;
export const live = true;

// load also reads the graph around the job. A page without it is better than none: the limits of a token may refuse it.
export async function load({ params }) {
  const path = `v1/jobs/${encodeURIComponent(params[0])}`;
  const [job, around] = await Promise.all([get(path), get(`${path}/graph`).catch(() => null)]);
  return { ...job, around };
}

export function view(job, page) {
  const state = phaseOf(job);
  return [
    h(
      "div.heading",
      {},
      h("h1", { tabindex: "-1" }, `Job ${job.id}`),
      badge(state),
      h("span.name", {}, job.kind),
      actions(job, state, page),
    ),
    h("p.lead", {}, story(job, state)),
    state !== "succeeded" && job.error ? h("section", {}, h("h2", {}, "Last error"), errorText(job.error)) : null,
    job.waits?.length ? section("Waits for", waitsFor(job, state)) : null,
    job.around?.nodes.length > 1 ? section("Flow", flow(job.around, (n) => n.id === job.id)) : null,
    h("div.columns", {}, section("Attempts", timeline(job, state)), section("Settings", settings(job))),
    job.redacted ? h("p.notice.calm", {}, "Payload and result are hidden from this token.") : null,
    documentOf("Payload", job.payload, job.payload_text),
    documentOf("Progress", job.progress, job.progress_text),
    documentOf("Checkpoint", job.checkpoint, job.checkpoint_text),
    documentOf("Result", job.result, job.result_text),
  ];
}

function actions(job, state, page) {
  if (!may.operate()) return null;
  const after = (name) => () => (name === "delete" ? page.leave("#/jobs") : page.refresh(true));
  return h(
    "div.buttons",
    { role: "group", "aria-label": "Change this job" },
    Object.entries(jobActions)
      .filter(([, action]) => action.from.includes(state))
      .map(([name, action]) =>
        h(
          "button.small",
          { type: "button", class: action.danger ? "danger" : "", "data-action": name, onclick: () => askOne(name, job, after(name)) },
          action.label,
        ),
      ),
    state === "ready" || state === "retrying"
      ? h("button.small", { type: "button", "data-action": "later", onclick: () => askReschedule(job, after("reschedule")) }, "Reschedule…")
      : null,
  );
}

// story says in a sentence what becomes of the job.
function story(job, state) {
  const attempt = `attempt ${job.attempts}; ${job.retries ? plural(job.retries, "failure") : "no failure"} so far, dead after ${plural(job.max_retries + 1, "failure")}`;
  switch (state) {
    case "blocked":
      if (job.expires_at && Date.parse(job.expires_at) <= now()) return ["It has expired ", time(job.expires_at), " and will not run."];
      return blockedBy(job);
    case "ready":
      if (job.expires_at && Date.parse(job.expires_at) <= now()) return ["It has expired ", time(job.expires_at), " and will not run."];
      return Date.parse(job.run_at) > now()
        ? ["It is due ", time(job.run_at), "."]
        : ["It has been due for ", since(job.run_at), " and waits for a worker."];
    case "in_flight": {
      const lost = Date.parse(job.lease_expires_at) < now();
      return [
        "Worker ",
        link(`#/workers/${encodeURIComponent(job.worker)}`, job.worker),
        " has had it for ",
        since(job.claimed_at),
        ` (${attempt}). `,
        lost
          ? ["Its lease ended ", time(job.lease_expires_at), ": another worker gets the job after the next recovery."]
          : ["Its lease ends ", time(job.lease_expires_at), " unless it is extended."],
      ];
    }
    case "retrying":
      return [
        `It has failed ${plural(job.retries, "time")}; with ${plural(job.max_retries + 1, "failure")} it would be dead. `,
        Date.parse(job.retry_at) > now()
          ? ["It runs again ", time(job.retry_at), "."]
          : ["It has been due again for ", since(job.retry_at), " and waits for a worker."],
      ];
    case "dead":
      return [`It failed ${plural(job.retries, "time")} and died `, time(job.finished_at), ". It runs again only if somebody requeues it."];
    case "succeeded":
      return ["It succeeded ", time(job.finished_at), job.claimed_at ? `, after ${took(job.claimed_at, job.finished_at)}.` : "."];
    default:
      return job.expires_at && Date.parse(job.expires_at) <= Date.parse(job.finished_at)
        ? ["It expired ", time(job.expires_at), " before a worker took it, and was cancelled."]
        : ["It was cancelled ", time(job.finished_at), "."];
  }
}

// blockedBy says how many jobs a blocked job waits for. A token for some queues does not see all of them.
function blockedBy(job) {
  const unmet = (job.waits ?? []).filter((w) => !w.met);
  return [
    unmet.some((w) => w.group) || !unmet.length
      ? "It waits for other jobs. "
      : `It waits for ${plural(unmet.length, "other job")}. `,
    unmet.some(holdsUp) ? "It will not go on by itself: see below. " : "",
    Date.parse(job.run_at) > now() ? ["After that it is due ", time(job.run_at), " at the earliest."] : "",
  ];
}

// holdsUp reports whether a wait will not end by itself.
const holdsUp = (w) => !w.met && !w.any && (!w.state || w.state === "dead" || w.state === "cancelled");

// waitsFor lists the jobs and groups that a job waits for, or has waited for.
const waitsFor = (job, state) =>
  h(
    "ul.plain",
    {},
    job.waits.map((w, i) =>
      h(
        "li",
        { "data-key": `${w.group ?? w.id}-${i}` },
        w.group ? link(groupPath(w.group), `Group ${w.group}`) : w.state ? link(`#/jobs/${w.id}`, `Job ${w.id}`) : `Job ${w.id}`,
        " ",
        w.met ? badge("succeeded", "met") : w.state ? badge(w.state) : badge("dead", "gone"),
        w.any ? " until it has ended" : " until it has succeeded",
        state === "blocked" && holdsUp(w) ? h("p.notice.held", {}, hint(w)) : null,
      ),
    ),
  );

const hint = (w) =>
  w.group && w.state === "dead"
    ? "A job of the group is dead, so this job stays blocked until somebody requeues it and it succeeds."
    : w.group
    ? "A job of the group was cancelled or removed, so this job stays blocked. Cancel it, and enqueue it again with another group."
    : w.state
    ? `Job ${w.id} is ${stateName(w.state)}, so this job stays blocked until somebody requeues job ${w.id} and it succeeds.`
    : `Job ${w.id} no longer exists, so this job stays blocked. Cancel it, and enqueue it again.`;

const endings = {
  "": ["in_flight", "running"],
  succeeded: ["succeeded", "succeeded"],
  failed: ["dead", "failed"],
  snoozed: ["ready", "snoozed"],
  released: ["cancelled", "released"],
  expired: ["lost", "lease expired"],
  cancelled: ["cancelled", "cancelled"],
};

// timeline lists the attempts, the latest first, with the writes that were refused because their lease was lost.
function timeline(job, state) {
  const refused = job.refused ?? [];
  const items = job.history
    .map((a, i) => ({
      at: a.started_at,
      item: attempt(
        a,
        job,
        refused.filter((r) => r.token && r.token === a.token),
        i,
      ),
    }))
    .reverse();
  const unplaced = refused.filter((r) => !r.token || !job.history.some((a) => a.token === r.token));
  if (state === "retrying" || state === "ready") {
    items.unshift({
      item: h(
        "li.planned",
        {},
        badge(state, "next attempt"),
        Date.parse(job.retry_at ?? job.run_at) > now() ? " " : " due since ",
        time(job.retry_at ?? job.run_at),
        h("small", {}, exact(job.retry_at ?? job.run_at)),
      ),
    });
  }
  return [
    h(
      "ol.timeline",
      {},
      items.map((i) => i.item),
      h("li.planned", {}, badge("", "enqueued"), " ", time(job.enqueued_at), h("small", {}, exact(job.enqueued_at))),
    ),
    unplaced.length ? h("ul.timeline", {}, unplaced.map(refusal)) : null,
  ];
}

function attempt(a, job, refused) {
  const [kind, text] = endings[a.ending ?? ""] ?? ["", a.ending];
  return h(
    "li",
    { "data-key": `${a.started_at}-${a.token ?? ""}` },
    badge(kind, text),
    " ",
    link(`#/workers/${encodeURIComponent(a.worker)}`, a.worker),
    h(
      "small",
      {},
      "claimed ",
      time(a.started_at),
      a.token ? ` under token ${a.token}` : "",
      a.ended_at
        ? `, ${a.ending === "expired" ? "recovered" : "ended"} after ${took(a.started_at, a.ended_at)}`
        : ["; running for ", since(a.started_at)],
    ),
    a.ending === "expired" ? h("p", {}, "The worker stopped extending its lease. The job was recovered for another worker.") : null,
    errorText(a.error),
    refused.map(refusal),
  );
}

const refusal = (r) =>
  h(
    "p.refused",
    {},
    badge("lost", "late write refused"),
    ` ${r.op}`,
    r.times > 1 ? ` ${plural(r.times, "time")}` : "",
    " ",
    time(r.at),
    h("small", {}, "The worker reported after it had lost the job. Nothing was changed."),
  );

function settings(job) {
  return facts([
    ["Queue", link(`#/queues/${encodeURIComponent(job.queue)}`, job.queue)],
    ["Group", job.group && link(groupPath(job.group), job.group)],
    ["Kind", link(`#/jobs?${new URLSearchParams({ kind: job.kind })}`, job.kind)],
    ["State", stateName(phaseOf(job))],
    [
      "Attempts",
      `${job.attempts}, with ${plural(job.retries, "failure")} since it was enqueued or requeued; dead after ${job.max_retries + 1}`,
    ],
    ["Priority", job.priority],
    ["Tags", (job.tags ?? []).map((t, i) => [i ? ", " : "", link(`#/jobs?${new URLSearchParams({ tag: t })}`, t)])],
    ["Unique key", job.unique_key && link(`#/jobs?${new URLSearchParams({ unique_key: job.unique_key })}`, job.unique_key)],
    ["Unique for", duration(job.unique_for)],
    ["Limit key", job.limit_key && link(`#/jobs?${new URLSearchParams({ queue: job.queue, limit_key: job.limit_key })}`, job.limit_key)],
    ["Timeout of a run", duration(job.timeout)],
    [
      "Backoff",
      job.backoff?.base ? `${duration(job.backoff.base)} to ${duration(job.backoff.cap)}, ${job.backoff.jitter ?? 0} % jitter` : "",
    ],
    ["Enqueued", job.enqueued_at && time(job.enqueued_at)],
    ["Due first", job.run_at && time(job.run_at)],
    ["Expires", job.expires_at && time(job.expires_at)],
    [
      "Schedule",
      job.schedule && [
        link(`#/schedules/${encodeURIComponent(job.schedule)}`, job.schedule),
        job.scheduled_for ? [", for ", time(job.scheduled_for)] : "",
      ],
    ],
    ["Waited", job.claimed_at && job.attempts === 1 ? span(Math.max(0, Date.parse(job.claimed_at) - Date.parse(job.run_at))) : ""],
    ["Token", job.token],
    ["Trace", job.trace],
  ]);
}
