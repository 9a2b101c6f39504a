// The jobs that match a filter, the newest first. The filter stands in the address, so a link shows the same to others.

import { h } from "./dom.js";
import { get, may, now, orNull } from "./api.js";
import { askMany, jobActions } from "./actions.js";
import { badge, firstLine, number, phaseOf, plural, short, since, stateName, states, time } from "./format.js";
import { link, table, tabs } from "./parts.js";

export const title = () => "Jobs";
export const live = true;

const fields = { queue: "Queue", kind: "Kind", tag: "Tag", worker: "Worker", unique_key: "Unique key", group: "Group", limit_key: "Limit key" };
const pageSize = 50;

const filterOf = (query) =>
  Object.fromEntries(
    Object.keys(fields)
      .map((name) => [name, query.get(name)])
      .filter(([, value]) => value),
  );

export async function load({ query, held, data }) {
  const filter = filterOf(query);
  const [jobs, overview] = await Promise.all([
    get("v1/jobs", { ...filter, state: query.get("state"), cursor: query.get("cursor"), limit: pageSize, documents: "false" }),
    orNull(get("v1/overview")),
  ]);
  return { jobs: settle(jobs.jobs, held && data), next: jobs.next, overview };
}

// settle keeps the rows where they are while somebody reads them. New jobs are counted, and shown when the reader asks for them.
function settle(jobs, before) {
  if (!before) return { rows: jobs, newer: 0 };
  const fresh = new Map(jobs.map((j) => [j.id, j]));
  const known = new Set(before.jobs.rows.map((j) => j.id));
  return { rows: before.jobs.rows.map((j) => fresh.get(j.id) ?? j), newer: jobs.filter((j) => !known.has(j.id)).length };
}

export function view({ jobs, next, overview }, page) {
  const { query } = page;
  const state = query.get("state") ?? "";
  const filter = filterOf(query);
  return [
    h(
      "div.heading",
      {},
      h("h1", { tabindex: "-1" }, "Jobs"),
      may.enqueue() ? h("div.buttons", {}, link("#/enqueue", "Enqueue a job")) : null,
    ),
    tabs("State", [["", "any state"], ...states.map((s) => [s, label(s, filter, overview)])], state, (s) =>
      page.link({ state: s || null, cursor: null }),
    ),
    form(filter, query, overview, page),
    toolbar(jobs.rows, filter, state, page),
    jobs.newer
      ? h("button.newer", { type: "button", onclick: () => page.refresh(true) }, `${plural(jobs.newer, "change")} in the list: show`)
      : null,
    jobs.rows.length ? listing(jobs.rows, page) : h("p.quiet", {}, "No job matches."),
    pager(query, next, page),
  ];
}

// label adds the sampled count to a tab. The sample knows only queues and states.
function label(state, filter, overview) {
  const others = Object.keys(filter).filter((name) => name !== "queue");
  if (!overview?.counted_at || others.length) return stateName(state);
  const queues = overview.queues.filter((q) => !filter.queue || q.queue === filter.queue);
  return [stateName(state), " ", h("span.count", {}, short(queues.reduce((sum, q) => sum + (q.jobs?.[state] ?? 0), 0)))];
}

function form(filter, query, overview, page) {
  const submit = (e) => {
    e.preventDefault();
    const values = Object.fromEntries(new FormData(e.currentTarget));
    if (values.id.trim()) {
      location.hash = `#/jobs/${encodeURIComponent(values.id.trim())}`;
      return;
    }
    delete values.id;
    page.go({ ...Object.fromEntries(Object.keys(fields).map((name) => [name, values[name].trim() || null])), cursor: null });
  };
  const input = (name) =>
    h(
      "label",
      {},
      h("span", {}, fields[name]),
      h("input", { name, value: filter[name] ?? "", autocomplete: "off", list: name === "queue" ? "queues" : null, maxlength: "255" }),
    );
  return h(
    "form.filter",
    { role: "search", "aria-label": "Filter jobs", onsubmit: submit },
    Object.keys(fields).map(input),
    h(
      "label",
      {},
      h("span", {}, "Job id"),
      h("input", { name: "id", inputmode: "numeric", pattern: "[0-9]*", autocomplete: "off", "data-search": "", value: "" }),
    ),
    h(
      "datalist",
      { id: "queues" },
      (overview?.queues ?? []).map((q) => h("option", { value: q.queue })),
    ),
    h(
      "div.buttons",
      {},
      h("button", { type: "submit" }, "Filter"),
      Object.keys(filter).length
        ? link(page.link({ ...Object.fromEntries(Object.keys(fields).map((n) => [n, null])), cursor: null }), "Clear")
        : null,
    ),
  );
}

// toolbar has the actions on the selected jobs or, without a selection, on all that match.
function toolbar(rows, filter, state, page) {
  if (!may.operate()) return null;
  const selected = rows.filter((j) => page.selected.has(j.id));
  const narrow = Object.keys(filter).length > 0 || state !== "";
  const phases = new Set(selected.length ? selected.map(phaseOf) : state ? [state] : states);
  const fits = Object.entries(jobActions).filter(([, action]) => action.from.some((s) => phases.has(s)));
  const done = () => {
    page.selected.clear();
    page.refresh(true);
  };
  const act = (name) => () =>
    selected.length
      ? askMany(name, { ids: selected.map((j) => j.id) }, `the ${plural(selected.length, "selected job")}`, done)
      : askMany(name, { ...apiFilter(filter), states: state ? [state] : [] }, `all jobs ${wordsOf(filter, state)}`, done);
  return h(
    "div.toolbar",
    { role: "group", "aria-label": "Change jobs" },
    h(
      "span",
      {},
      selected.length
        ? `${number(selected.length)} selected:`
        : narrow
          ? "All that match:"
          : "Select jobs or set a filter to change many at once.",
    ),
    selected.length || narrow
      ? fits.map(([name, action]) =>
          h(
            "button.small",
            { type: "button", class: action.danger ? "danger" : "", "data-action": name, onclick: act(name) },
            `${action.label}…`,
          ),
        )
      : null,
    selected.length
      ? h(
          "button.plain",
          {
            type: "button",
            onclick: () => {
              page.selected.clear();
              page.redraw();
            },
          },
          "Clear the selection",
        )
      : null,
  );
}

const apiFilter = (filter) => ({ ...filter });

const wordsOf = (filter, state) =>
  [
    state ? `that are ${stateName(state)}` : "",
    ...Object.entries(filter).map(([name, value]) => `with ${fields[name].toLowerCase()} ${value}`),
  ]
    .filter(Boolean)
    .join(", ");

function listing(rows, page) {
  const boxes = may.operate();
  const all = rows.every((j) => page.selected.has(j.id));
  const select = (ids, on) => {
    for (const id of ids) on ? page.selected.add(id) : page.selected.delete(id);
    page.redraw();
  };
  const box = (checked, some, label, ids) =>
    h("input", {
      type: "checkbox",
      "aria-label": label,
      checked,
      indeterminate: some && !checked,
      onchange: (e) => select(ids, e.currentTarget.checked),
    });
  const heads = [["Job", "self"], ["State", "self"], ["Kind", "self"], ["Queue"], ["Attempts", "n"], ["When"], ["Worker or error", "wide"]];
  if (boxes)
    heads.unshift([
      box(
        all,
        rows.some((j) => page.selected.has(j.id)),
        "Select all jobs of this page",
        rows.map((j) => j.id),
      ),
      "box",
    ]);
  return table(
    heads,
    rows.map((job) => {
      const state = phaseOf(job);
      const cells = [
        link(`#/jobs/${job.id}`, job.id),
        badge(state),
        h("span.name", {}, job.kind),
        link(page.link({ queue: job.queue, cursor: null }), job.queue),
        ["dead", "succeeded", "cancelled"].includes(state) ? job.attempts : `${job.attempts} of ${job.max_retries + 1}`,
        when(job, state),
        state === "in_flight" ? job.worker : h("span.error", {}, firstLine(job.error)),
      ];
      if (boxes) cells.unshift(box(page.selected.has(job.id), false, `Select job ${job.id}`, [job.id]));
      return [job.id, cells, page.selected.has(job.id) ? "chosen" : ""];
    }),
  );
}

function when(job, state) {
  switch (state) {
    case "blocked":
      return ["enqueued ", time(job.enqueued_at)];
    case "ready":
      return [Date.parse(job.run_at) > Date.parse(job.enqueued_at) ? "due " : "enqueued ", time(job.run_at)];
    case "in_flight":
      return ["claimed ", time(job.claimed_at)];
    case "retrying":
      return Date.parse(job.retry_at) > now() ? ["again ", time(job.retry_at)] : ["due for ", since(job.retry_at)];
    default:
      return [`${state === "dead" ? "died" : stateName(state)} `, time(job.finished_at)];
  }
}

function pager(query, next, page) {
  if (!next && !query.get("cursor")) return null;
  return h(
    "nav.pager",
    { "aria-label": "Pages" },
    query.get("cursor") ? link(page.link({ cursor: null }), "Newest jobs") : null,
    next ? link(page.link({ cursor: next }), "Older jobs") : null,
  );
}
