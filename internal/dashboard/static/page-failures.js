// Failed jobs, grouped by what failed.

import { h } from "./dom.js";
import { get, may } from "./api.js";
import { askMany, jobActions } from "./actions.js";
import { number, plural, time } from "./format.js";
import { link, section, tabs } from "./parts.js";

export const title = () => "Failures";
export const live = true;

export const load = ({ query }) => get("v1/errors", { queue: query.get("queue"), kind: query.get("kind"), last: query.get("last") });

export function view(data, page) {
  const { query } = page;
  const narrowed = [
    ["queue", "queue"],
    ["kind", "kind"],
  ].filter(([name]) => query.get(name));
  return [
    h(
      "div.heading",
      {},
      h("h1", { tabindex: "-1" }, "Failures"),
      tabs(
        "Time",
        [
          ["", "all"],
          ["1h", "last hour"],
          ["24h", "last day"],
        ],
        query.get("last") ?? "",
        (last) => page.link({ last: last || null }),
      ),
    ),
    narrowed.length
      ? h(
          "p",
          {},
          "Only ",
          narrowed.map(([name, word], i) => [i ? ", " : "", `${word} ${query.get(name)}`]),
          ". ",
          link(page.link({ queue: null, kind: null }), "Show all"),
        )
      : null,
    h(
      "p.quiet",
      {},
      `${plural(data.looked_at, "job")} that ${data.looked_at === 1 ? "is" : "are"} retrying or dead`,
      data.more ? `: the newest ${number(data.looked_at)}, there are more.` : ".",
      " Digits and names in quotes count as the same error.",
    ),
    data.groups.length ? data.groups.map((g) => group(g, page)) : h("p.notice.good", {}, "Nothing is retrying or dead."),
  ];
}

function group(g, page) {
  const some = (name) =>
    h(
      "button.small",
      {
        type: "button",
        class: jobActions[name].danger ? "danger" : "",
        "data-action": name,
        onclick: () => askMany(name, { ids: g.ids }, `the ${plural(g.ids.length, "job")} of this group`, () => page.refresh(true)),
      },
      `${jobActions[name].label}…`,
    );
  return h(
    "div.card",
    { "data-key": JSON.stringify([g.queue, g.kind, g.error]) },
    section(
      [h("span.rank", {}, number(g.jobs)), " ", h("span.error", {}, g.error || "no error text")],
      h(
        "p",
        {},
        link(`#/jobs?${new URLSearchParams({ kind: g.kind })}`, g.kind),
        " in ",
        link(`#/queues/${encodeURIComponent(g.queue)}`, g.queue),
        `: ${number(g.dead)} dead, ${number(g.retrying)} retrying. Last `,
        time(g.newest.at),
        " in ",
        link(`#/jobs/${g.newest.id}`, `job ${g.newest.id}`),
        g.jobs > 1 ? [", first ", time(g.oldest.at), " in ", link(`#/jobs/${g.oldest.id}`, `job ${g.oldest.id}`)] : null,
        ".",
      ),
      g.example && g.example !== g.error ? h("p.quiet", {}, "Such as: ", g.example) : null,
      may.operate()
        ? h("div.buttons", {}, g.dead ? [some("requeue"), some("delete")] : null, g.retrying ? [some("reschedule"), some("cancel")] : null)
        : null,
    ),
  );
}
