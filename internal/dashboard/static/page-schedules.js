// The schedules, and what they will enqueue.

import { h } from "./dom.js";
import { call, get, may, now, orNull, Problem } from "./api.js";
import { askSchedule } from "./actions.js";
import { badge, clockTime, exact, plural, time, zone } from "./format.js";
import { documentOf, facts, link, section, table } from "./parts.js";

export const title = ({ params }) => (params.length ? `Schedule ${params[0]}` : "Schedules");
export const live = true;

const previewed = 20; // schedules whose next times are asked for

export async function load({ params }) {
  const [name] = params;
  if (name !== undefined) {
    const schedule = await get(`v1/schedules/${encodeURIComponent(name)}`);
    return { schedule, times: await preview(schedule), overview: await orNull(get("v1/overview")) };
  }
  const { schedules, next } = await get("v1/schedules", { limit: 500 });
  const soon = schedules
    .filter((s) => s.next_at && !s.paused)
    .sort(byNext)
    .slice(0, previewed);
  return { schedules, more: Boolean(next), plans: await Promise.all(soon.map(async (s) => ({ schedule: s, times: await preview(s) }))) };
}

const byNext = (a, b) => Date.parse(a.next_at ?? "9999-01-01") - Date.parse(b.next_at ?? "9999-01-01");

// preview returns the next five times: the one that the store has, and those after it.
async function preview(s) {
  if (!s.next_at) return [];
  try {
    const { times } = await call("POST", "v1/schedules/preview", {
      cron: s.cron,
      timezone: s.timezone || undefined,
      count: 4,
      after: s.next_at,
    });
    return [s.next_at, ...times];
  } catch (error) {
    if (error instanceof Problem && error.status === 400) return [s.next_at]; // the server cannot read the expression
    throw error;
  }
}

export function view(data, page) {
  return page.params.length ? one(data, page) : all(data, page);
}

function all({ schedules, plans, more }, page) {
  return [
    h("div.heading", {}, h("h1", { tabindex: "-1" }, "Schedules")),
    schedules.length
      ? [
          section(`The next 24 hours (${zone()})`, agenda(plans)),
          section(
            "All schedules",
            table(
              [["Schedule"], ["Enqueues"], ["Expression"], ["Next", "n"], ["Last", "n"], [may.operate() ? "Action" : ""]],
              [...schedules].sort(byNext).map((s) => [
                s.name,
                [
                  [link(href(s.name), s.name), s.paused ? [" ", badge("paused", "paused")] : null],
                  `${s.job.kind} in ${s.job.queue ?? "default"}`,
                  [h("code", {}, s.cron), s.timezone ? ` ${s.timezone}` : ""],
                  s.paused ? "paused" : s.next_at ? time(s.next_at) : "never",
                  s.last_at ? time(s.last_at) : "–",
                  may.operate()
                    ? h(
                        "button.small",
                        {
                          type: "button",
                          "aria-label": `Run now: schedule ${s.name}`,
                          onclick: () => askSchedule("run", s.name, () => page.refresh(true)),
                        },
                        "Run now",
                      )
                    : null,
                ],
              ]),
            ),
          ),
          more ? h("p.quiet", {}, "The first 500 schedules are shown.") : null,
        ]
      : h(
          "p.quiet",
          {},
          "No schedule is set. Programs set schedules when they start, and ",
          h("code", {}, "jobq schedules set"),
          " sets one by hand.",
        ),
  ];
}

const href = (name) => `#/schedules/${encodeURIComponent(name)}`;

// agenda lists what runs within a day, by time. Of each schedule at most five times are known.
function agenda(plans) {
  const end = now() + 86400000;
  const entries = plans
    .map(({ schedule, times }) => ({ schedule, soon: times.filter((t) => Date.parse(t) <= end) }))
    .filter(({ soon }) => soon.length);
  if (!entries.length) return h("p.quiet", {}, "Nothing runs by schedule in the next 24 hours.");
  return h(
    "ol.ranking",
    {},
    entries.map(({ schedule: s, soon: [first, ...rest] }) =>
      h(
        "li",
        { "data-key": s.name },
        h("span.rank", { title: exact(first) }, clockTime(first)),
        h(
          "span",
          {},
          link(href(s.name), s.name),
          h(
            "small",
            {},
            `${s.job.kind} in ${s.job.queue ?? "default"}, `,
            time(first),
            rest.length ? `; then ${rest.map(clockTime).join(", ")}` : "",
            rest.length === 4 ? " and so on" : "",
          ),
        ),
      ),
    ),
  );
}

function one({ schedule: s, times, overview }, page) {
  const queue = overview?.queues.find((q) => q.queue === (s.job.queue ?? "default"));
  const after = (name) => (name === "delete" ? page.leave("#/schedules") : page.refresh(true));
  const button = (name, label, danger) =>
    h(
      "button.small",
      { type: "button", class: danger ? "danger" : "", "data-action": name, onclick: () => askSchedule(name, s.name, after) },
      label,
    );
  return [
    h(
      "div.heading",
      {},
      h("h1", { tabindex: "-1" }, s.name),
      s.paused ? badge("paused", "paused") : null,
      may.operate()
        ? h(
            "div.buttons",
            { role: "group", "aria-label": "Change this schedule" },
            button("run", "Run now"),
            s.paused ? button("resume", "Resume") : button("pause", "Pause"),
            button("reset", "Skip to the next time"),
            button("delete", "Delete", true),
          )
        : null,
    ),
    queue?.paused ? h("p.notice.bad", {}, "Its queue is paused, so its jobs wait.") : null,
    h(
      "div.columns",
      {},
      section(
        "Next times",
        s.paused
          ? h("p.quiet", {}, "It is paused.")
          : times.length
            ? h(
                "ol.plain",
                {},
                times.map((t) => h("li", {}, exact(t), " ", h("small", {}, time(t)))),
              )
            : h("p.quiet", {}, "It has no further time."),
      ),
      section(
        "Settings",
        facts([
          ["Expression", h("code", {}, s.cron)],
          ["Time zone", s.timezone || "UTC"],
          ["Last", s.last_at && [time(s.last_at), s.last_job ? [", ", link(`#/jobs/${s.last_job}`, `job ${s.last_job}`)] : ""]],
          ["If times were missed", s.catch_up === "skip" ? "leave them out" : "enqueue one job for the latest"],
          ["If the last job still runs", s.overlap === "skip" ? "leave the time out" : "enqueue the next one"],
          ["Declared by", s.owner && `${s.owner}, version ${s.version ?? 0}`],
        ]),
      ),
      section(
        "Job",
        facts([
          ["Kind", s.job.kind],
          ["Queue", link(`#/queues/${encodeURIComponent(s.job.queue ?? "default")}`, s.job.queue ?? "default")],
          ["Priority", s.job.priority],
          ["Retries", s.job.max_retries === undefined ? "" : plural(s.job.max_retries, "retry", "retries")],
          ["Unique key", s.job.unique_key],
          ["Limit key", s.job.limit_key],
        ]),
      ),
    ),
    s.redacted
      ? h("p.notice.calm", {}, "The payload is hidden from this token.")
      : documentOf("Payload", s.job.payload, s.job.payload_text),
    h("p", {}, link(`#/jobs?${new URLSearchParams({ queue: s.job.queue ?? "default", kind: s.job.kind })}`, "Jobs of this kind")),
  ];
}
