// What operators change. Each action says first what it will do, and to how many jobs.

import { h } from "./dom.js";
import { call, now, Problem } from "./api.js";
import { anyOpen, ask, field, Mistake, tell } from "./dialog.js";
import { number, phaseOf, plural, stateName } from "./format.js";

const batch = 1000; // the most that one call may change

// The actions on jobs: from which states they work, and what they do to one job or to many.
export const jobActions = {
  requeue: {
    label: "Requeue",
    done: "requeued",
    from: ["dead", "succeeded", "cancelled"],
    effect: (many, job) =>
      `${many ? "They become ready and are" : "It becomes ready and is"} due now, with all retries left. Error and result are cleared. ` +
      "A checkpoint stays, unless the job had succeeded." +
      (many || job?.waits ? ` ${many ? "A job" : "It"} is blocked instead while it still has to wait for other jobs.` : ""),
  },
  reschedule: {
    label: "Run now",
    done: "due now",
    from: ["ready", "retrying"],
    effect: (many) => `${many ? "They are" : "It is"} due now instead of later. Workers take jobs with a higher priority first.`,
  },
  cancel: {
    label: "Cancel",
    done: "cancelled",
    from: ["blocked", "ready", "in_flight", "retrying"],
    danger: true,
    effect: (many) =>
      `${many ? "They end" : "It ends"} as cancelled and will not run. A worker that runs ${many ? "one of them" : "it"} ` +
      `loses its lease: it learns of that shortly, and whatever it still writes is refused. Jobs that need ` +
      `${many ? "their" : "its"} success are cancelled too.`,
  },
  delete: {
    label: "Delete",
    done: "deleted",
    from: ["dead", "succeeded", "cancelled"],
    danger: true,
    effect: (many) =>
      `${many ? "The jobs and their histories are" : "The job and its history are"} gone for good. ` +
      "Jobs that need the success of a dead job which is deleted are cancelled.",
  },
};

// askOne asks before an action on one job.
export function askOne(name, job, after) {
  const action = jobActions[name];
  ask({
    title: `${action.label === "Run now" ? "Run" : action.label} job ${job.id}${action.label === "Run now" ? " now" : ""}?`,
    text: [h("p.facts", {}, `${job.kind} in queue ${job.queue}, ${stateName(phaseOf(job))}`), action.effect(false, job)],
    label: name === "cancel" ? `Cancel job ${job.id}` : action.label,
    danger: action.danger,
    run: async () => {
      if (name === "delete") await call("DELETE", `v1/jobs/${job.id}`);
      else await call("POST", `v1/jobs/${job.id}/${name}`);
      after();
      return `Job ${job.id} is ${action.done}.`;
    },
  });
}

// askReschedule asks for another due time.
export function askReschedule(job, after) {
  const local = new Date(Date.parse(job.retry_at ?? job.run_at ?? 0) || now());
  const value = new Date(Math.max(local, now()) - local.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
  ask({
    title: `Reschedule job ${job.id}`,
    text: "The job gets another due time. Nothing else changes. A time in the past means now.",
    fields: [field("Due at (your time zone)", h("input", { type: "datetime-local", name: "at", step: "1", value, required: true }))],
    label: "Reschedule",
    run: async ({ at }) => {
      const time = new Date(at);
      if (Number.isNaN(time.getTime())) throw new Mistake("Enter a date and a time.");
      await call("POST", `v1/jobs/${job.id}/reschedule`, { run_at: time.toISOString() });
      after();
      return `Job ${job.id} is rescheduled.`;
    },
  });
}

// askMany counts the jobs that match and that the action can change, and asks before it changes all of them. The filter is one of the
// API; words say which jobs it means.
export async function askMany(name, filter, words, after) {
  const action = jobActions[name];
  const states = filter.states?.length ? filter.states.filter((s) => action.from.includes(s)) : action.from;
  const narrowed = { ...filter, states };
  let counts = {};
  try {
    if (states.length && !(filter.ids && !filter.ids.length)) counts = await count(narrowed);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    tell(`The jobs cannot be counted: ${error.message}.`, true);
    return;
  }
  if (anyOpen()) return; // after a second click
  const total = Object.values(counts).reduce((sum, n) => sum + n, 0);
  if (!total) {
    ask({
      title: `Nothing to ${action.label.toLowerCase()}`,
      text: `None of ${words} is ${list(action.from.map(stateName), "or")}.`,
      label: "OK",
      run: () => "",
    });
    return;
  }
  ask({
    title: `${action.label}: ${plural(total, "job")}?`,
    text: [
      h("p", {}, `This applies to ${words}:`),
      h(
        "ul.facts",
        {},
        Object.entries(counts).map(([state, n]) => h("li", {}, `${number(n)} ${stateName(state)}`)),
      ),
      action.effect(total > 1),
    ],
    label: `${action.label} ${plural(total, "job")}`,
    danger: action.danger,
    run: async (_, progress) => {
      const outcomes = await change(name, narrowed, total, progress);
      after();
      return report(action, outcomes);
    },
  });
}

// count counts jobs by state.
async function count(filter) {
  const sums = {};
  for (const part of parts(filter)) {
    const answer = await call("POST", "v1/jobs/count", { filter: part });
    for (const queue of answer.queues) for (const [state, n] of Object.entries(queue.jobs)) sums[state] = (sums[state] ?? 0) + n;
  }
  return sums;
}

// parts divides a filter with many ids.
function parts(filter) {
  if (!filter.ids) return [filter];
  return Array.from({ length: Math.ceil(filter.ids.length / batch) }, (_, i) => ({
    ...filter,
    ids: filter.ids.slice(i * batch, (i + 1) * batch),
  }));
}

// change calls the action until all jobs have been seen, in ascending order of id, or until the reader closes the question. Jobs that
// begin to match meanwhile may be changed as well; the limit ends the loop if there is no end of them.
async function change(action, filter, total, progress) {
  const outcomes = {};
  let seen = 0;
  const add = (results) => {
    for (const r of results) outcomes[r.status] = (outcomes[r.status] ?? 0) + 1;
    seen += results.length;
    return progress(`${number(Math.min(seen, total))} of ${number(total)} …`);
  };
  if (filter.ids) {
    for (const part of parts(filter)) if (!add((await call("POST", "v1/jobs/bulk", { action, filter: part })).results)) break;
    return outcomes;
  }
  let after;
  while (seen < 2 * total + batch) {
    const { results } = await call("POST", "v1/jobs/bulk", { action, filter: after ? { ...filter, after } : filter, limit: batch });
    if (!add(results) || results.length < batch) break;
    after = results.at(-1).id;
  }
  return outcomes;
}

const problems = {
  wrong_state: "no longer in a state that allows it",
  duplicate: "held back, because another job has the unique key",
  not_found: "no longer there or changed meanwhile",
};

function report(action, outcomes) {
  const parts = [`${plural(outcomes.ok ?? 0, "job")} ${action.done}.`];
  for (const [status, n] of Object.entries(outcomes)) if (status !== "ok") parts.push(`${number(n)} ${problems[status] ?? status}.`);
  return parts.join(" ");
}

const list = (words, last) => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} ${last} ${words.at(-1)}`);

// askPause asks before a queue is paused or resumed.
export function askPause(queue, paused, after) {
  ask({
    title: `${paused ? "Pause" : "Resume"} queue ${queue}?`,
    text: paused
      ? "Workers take no more jobs from this queue, on all servers, until it is resumed. Running jobs finish, and new jobs are accepted."
      : "Workers take jobs from this queue again, at once and on all servers.",
    label: paused ? "Pause" : "Resume",
    run: async () => {
      await call("POST", `v1/queues/${encodeURIComponent(queue)}/${paused ? "pause" : "resume"}`);
      after();
      return `Queue ${queue} is ${paused ? "paused" : "running"}.`;
    },
  });
}

// askPolicy asks for the limits and the retentions of a queue. It sends no owner, so a policy that a program has declared stays the program's.
export function askPolicy(queue, policy, after) {
  const defaults = { retain_succeeded: "24h", retain_cancelled: "168h", retain_dead: "keep" };
  const input = (name, label) =>
    field(
      label,
      h("input", { name, value: policy[name] ?? "", placeholder: defaults[name], autocomplete: "off" }),
      `such as 48h, or keep for ever; empty for the default, ${defaults[name]}`,
    );
  const limit = (name, label, most) =>
    field(
      label,
      h("input", { name, inputmode: "numeric", value: policy[name] ?? "", placeholder: "any number", autocomplete: "off" }),
      `1 to ${number(most)}; empty for any number`,
    );
  const fair = field(
    "Limit keys take turns",
    h("input", { type: "checkbox", name: "fair", checked: policy.fair }),
    "one customer with many jobs does not hold up the others",
  );
  const ordered = field(
    "Jobs of a limit key run in order",
    h("input", { type: "checkbox", name: "ordered", checked: policy.ordered }),
    "one at a time, as they were enqueued; none may have a priority",
  );
  const rate = field(
    "Rate of claims",
    h("input", { name: "rate", value: policy.rate ? rateText(policy.rate) : "", placeholder: "any number", autocomplete: "off" }),
    "such as 100/1m, at most 100 jobs a minute; empty for any number",
  );
  ask({
    title: `Policy of queue ${queue}`,
    text: "All processes that use this store follow it. Servers delete finished jobs that are older; the shortest time is 1h.",
    fields: [
      limit("max_in_flight", "Jobs in flight at once", 10000),
      limit("max_per_key", "Jobs in flight for each limit key", 1000),
      fair,
      ordered,
      rate,
      input("retain_succeeded", "Keep succeeded jobs"),
      input("retain_cancelled", "Keep cancelled jobs"),
      input("retain_dead", "Keep dead jobs"),
    ],
    label: "Save",
    run: async (values) => {
      const next = { version: policy.version ?? 0 };
      for (const [name, value] of Object.entries(values)) if (value.trim()) next[name] = value.trim();
      for (const name of ["max_in_flight", "max_per_key"]) if (/^\d+$/.test(next[name])) next[name] = Number(next[name]);
      for (const name of ["fair", "ordered"]) if (next[name]) next[name] = true; // a box that is not ticked has no value
      if (next.rate) next.rate = rateOf(next.rate);
      await call("PUT", `v1/queues/${encodeURIComponent(queue)}/policy`, next);
      after();
      return `The policy of queue ${queue} is saved.`;
    },
  });
}

// rateText writes a rate as it is entered, such as 100/1m.
const rateText = ({ n, per }) => `${n}/${per.replace(/([hm])0s$/, "$1").replace(/h0m$/, "h")}`;

// rateOf reads a rate. The server checks its bounds.
function rateOf(text) {
  const [, n, per] = /^(\d+)\s*\/\s*(\S+)$/.exec(text) ?? [];
  if (!per) throw new Mistake("The rate of claims must be a number of jobs and a duration, such as 100/1m.");
  return { n: Number(n), per };
}

// The actions on a schedule.
const scheduleActions = {
  run: { label: "Run now", text: "One job is enqueued now. The next times stay as they are.", done: "has run" },
  pause: { label: "Pause", text: "The schedule enqueues no jobs until it is resumed.", done: "is paused" },
  resume: { label: "Resume", text: "The schedule enqueues jobs again, from its next time on.", done: "is running" },
  reset: {
    label: "Skip to the next time",
    text: "Times that were missed are left out: the schedule goes on with its next time after now.",
    done: "goes on from now",
  },
  delete: { label: "Delete", text: "The schedule is gone. Jobs that it has enqueued stay.", done: "is deleted", danger: true },
};

export function askSchedule(name, schedule, after) {
  const action = scheduleActions[name];
  ask({
    title: `${action.label}: schedule ${schedule}?`,
    text: action.text,
    label: action.label,
    danger: action.danger,
    run: async () => {
      const path = `v1/schedules/${encodeURIComponent(schedule)}`;
      if (name === "delete") await call("DELETE", path);
      else await call("POST", `${path}/${name}`);
      after(name);
      return `Schedule ${schedule} ${action.done}.`;
    },
  });
}
