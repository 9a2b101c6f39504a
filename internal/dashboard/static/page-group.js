// A group of jobs: its state, and the flow around it.

import { h } from "./dom.js";
import { get } from "./api.js";
import { badge, number, states, time } from "./format.js";
import { facts, link, section } from "./parts.js";
import { flow, groupWords } from "./flow.js";

export const title = ({ params }) => `Group ${params[0]}`;
export const live = true;

// In a path, a server would read . and .. as steps.
const escaped = (name) => encodeURIComponent(name).replace(/^\.{1,2}$/, (dots) => dots.replaceAll(".", "%2E"));

export const load = ({ params }) => get(`v1/groups/${escaped(params[0])}`);

export function view(group) {
  const node = group.graph.nodes.find((n) => n.name === group.name);
  return [
    h("div.heading", {}, h("h1", { tabindex: "-1" }, `Group ${group.name}`), badge(node?.state, groupWords(group))),
    group.opened_at ? h("p.lead", {}, "It was opened ", time(group.opened_at), ", and jobs are still to come.") : null,
    section(
      "Jobs",
      facts(
        states
          .filter((s) => group.jobs[s])
          .map((s) => [s.replace("_", " "), number(group.jobs[s])]),
      ),
      h("p", {}, link(`#/jobs?${new URLSearchParams({ group: group.name })}`, "List its jobs")),
    ),
    section("Flow", flow(group.graph, (n) => n.name === group.name)),
  ];
}
