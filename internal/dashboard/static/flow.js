// The picture of a flow: jobs and groups that wait for each other, from left to right. The server has put the nodes into layers, and
// sorted them so that few lines cross. A table below has the same as text.

import { h } from "./dom.js";
import { badge, number, plural, stateName, states } from "./format.js";
import { link, table } from "./parts.js";

const box = { width: 176, height: 46, across: 64, between: 14, edge: 24 };
const alike = 6; // so many of a kind are drawn at most, if nothing waits for them

export const groupPath = (name) => `#/groups/${encodeURIComponent(name)}`;

// groupWords says in a few words how a group is.
export const groupWords = (g) =>
  [g.open ? "open" : g.live ? "running" : "done", g.dead ? "has dead jobs" : "", g.spoiled ? "spoiled" : ""].filter(Boolean).join(", ");

const nameOf = (n) => (n.name ? `Group ${n.name}` : `Job ${n.id}`);
const pathOf = (n) => (n.name ? groupPath(n.name) : n.state ? `#/jobs/${n.id}` : null);
const stateOf = (n) => (n.name ? groupWords(n) : n.state ? stateName(n.state) : "gone");
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// flow shows a graph. The node for which asked returns true is marked.
export function flow(graph, asked) {
  const holders = holdersOf(graph);
  return [
    holders.size ? h("p.notice.held", {}, "Held up by ", listed([...holders], graph), ".") : null,
    (graph.circles ?? []).map((circle) =>
      h("p.notice.bad", {}, "These wait for each other and can never go on: ", listed([...circle, circle[0]], graph), ". Cancel one of the jobs."),
    ),
    graph.truncated ? h("p.notice", {}, `There is more: these are the nearest ${number(graph.nodes.length)} jobs and groups.`) : null,
    picture(graph, asked, holders),
    h(
      "p.quiet.key",
      {},
      "An arrow leads from what is waited for to what waits: solid if the wait is over, dashed if not, red if it is held up. A dotted line leads from a job to its group.",
    ),
    h("details", { "data-key": "flow-table" }, h("summary", {}, `The same as a table: ${plural(graph.nodes.length, "job or group", "jobs and groups")}`), asTable(graph)),
  ];
}

const nameLink = (n) => (pathOf(n) ? link(pathOf(n), nameOf(n)) : nameOf(n));

const listed = (indices, graph) =>
  indices.slice(0, 12).map((i, at) => [at ? ", " : "", nameLink(graph.nodes[i]), ` (${stateOf(graph.nodes[i])})`]).concat(indices.length > 12 ? [", …"] : []);

const inVain = (edge, graph) => {
  const on = graph.nodes[edge.on];
  if (edge.met || graph.nodes[edge.waiter].state !== "blocked") return false;
  return on.name ? !edge.any && Boolean(on.dead || on.spoiled) : !on.state || on.state === "dead" || on.state === "cancelled";
};

// holdersOf returns the indices of what holds others up: of a group with dead jobs these, if they are there.
function holdersOf(graph) {
  const found = new Set();
  for (const edge of graph.edges) {
    if (!inVain(edge, graph)) continue;
    const on = graph.nodes[edge.on];
    const dead = on.name && !on.spoiled ? [...graph.nodes.keys()].filter((i) => graph.nodes[i].group === on.name && graph.nodes[i].state === "dead") : [];
    for (const i of dead.length ? dead : [edge.on]) found.add(i);
  }
  return found;
}

// lines are the waits, and the ways from jobs to their groups.
function linesOf(graph) {
  const groups = new Map(graph.nodes.map((n, i) => [n.name, i]).filter(([name]) => name));
  const lines = graph.edges.map((e) => ({ from: e.on, to: e.waiter, kind: inVain(e, graph) ? "held" : e.met ? "met" : "unmet" }));
  graph.nodes.forEach((n, i) => {
    if (!n.name && groups.has(n.group)) lines.push({ from: i, to: groups.get(n.group), kind: "within" });
  });
  return lines;
}

// shownOf returns the nodes that have a box. Of many that are alike, and that lead to nothing but their group, one box counts the rest.
function shownOf(graph, lines, keep) {
  const before = graph.nodes.map(() => []);
  const leads = new Set();
  for (const { from, to, kind } of lines) {
    before[to].push(from);
    if (kind !== "within") leads.add(from);
  }
  const like = new Map();
  const kin = graph.nodes.map((n, i) => {
    if (n.name || leads.has(i) || keep(n, i)) return [i];
    const key = JSON.stringify([n.layer, n.kind, n.state, n.group, before[i]]);
    if (!like.has(key)) like.set(key, []);
    like.get(key).push(i);
    return like.get(key);
  });
  return graph.nodes
    .map((node, index) => {
      const rest = kin[index].length > alike ? kin[index].indexOf(index) - (alike - 1) : -1;
      return { node, index, more: rest === 0 ? kin[index].length - (alike - 1) : 0, hidden: rest > 0 };
    })
    .filter((place) => !place.hidden);
}

function picture(graph, asked, holders) {
  const circled = new Set((graph.circles ?? []).flat());
  const all = linesOf(graph);
  const shown = shownOf(graph, all, (n, i) => asked(n) || holders.has(i) || circled.has(i));
  const known = new Set(shown.map((place) => place.index));
  const lines = all.filter((l) => known.has(l.from) && known.has(l.to));
  const { at, through, width, height } = places(graph, shown, lines);
  return h(
    "div.flow",
    { tabindex: "0", role: "region", "aria-label": "Picture of the flow", "data-key": "flow" },
    h(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Jobs and groups that wait for each other. The table below has the same." },
      lines.map((l) => line(at.get(l.from), at.get(l.to), l, through, height)),
      shown.map((place) => boxOf(place, asked(place.node))),
    ),
  );
}

// places sets where the boxes are. A line that passes a layer gets a lane there, below the boxes, which it shares with others from the same
// box: through has the heights of the lanes.
function places(graph, shown, lines) {
  const at = new Map(shown.map((place) => [place.index, place]));
  const boxes = [];
  const lanes = [];
  for (const place of shown) (boxes[place.node.layer] ??= []).push(place);
  let back = false;
  for (const { from, to } of lines) {
    const [first, last] = [graph.nodes[from].layer, graph.nodes[to].layer];
    back ||= last <= first;
    for (let x = first + 1; x < last; x++) (lanes[x] ??= new Set()).add(from);
  }
  const tall = (x) => (boxes[x]?.length ?? 0) * (box.height + box.between) + (lanes[x]?.size ?? 0) * box.between;
  const layers = Math.max(...shown.map((place) => place.node.layer)) + 1;
  const most = Math.max(...Array.from({ length: layers }, (_, x) => tall(x)));
  const through = new Map();
  for (let x = 0; x < layers; x++) {
    let y = box.edge + (most - tall(x)) / 2;
    for (const place of boxes[x] ?? []) {
      Object.assign(place, { x: left(x), y });
      y += box.height + box.between;
    }
    for (const from of lanes[x] ?? []) {
      through.set(`${from}/${x}`, y);
      y += box.between;
    }
  }
  return { at, through, width: left(layers) - box.across + box.edge, height: 2 * box.edge + most - box.between + (back ? box.height : 0) };
}

const left = (layer) => box.edge + layer * (box.width + box.across);

// line draws a curve with an arrow at its end. What leads back, as in a circle, goes along the bottom.
function line(from, to, { kind }, through, height) {
  const end = { x: to.x - 7, y: to.y + box.height / 2 };
  let here = { x: from.x + box.width, y: from.y + box.height / 2 };
  let way = `M${here.x} ${here.y}`;
  const curve = (x, y) => {
    const middle = (here.x + x) / 2;
    way += `C${middle} ${here.y} ${middle} ${y} ${x} ${y}`;
    here = { x, y };
  };
  if (to.x <= from.x) {
    const low = height - 8;
    const [right, before] = [here.x + box.edge, to.x - box.edge];
    way += `C${right} ${here.y} ${right} ${low} ${here.x} ${low}H${to.x}C${before} ${low} ${before} ${end.y} ${end.x} ${end.y}`;
  } else {
    for (let x = from.node.layer + 1; x < to.node.layer; x++) {
      const y = through.get(`${from.index}/${x}`);
      curve(left(x), y);
      here.x += box.width;
      way += `H${here.x}`;
    }
    curve(end.x, end.y);
  }
  return h(
    "g",
    { class: `line is-${kind}`, "aria-hidden": "true", "data-key": `${from.index}-${to.index}` },
    h("path.way", { d: kind === "within" ? `${way}h7` : way }),
    kind === "within" ? null : h("path.tip", { d: `M${end.x + 7} ${end.y}l-8 -4.5v9z` }),
  );
}

function boxOf({ node, more, index, x, y }, asked) {
  const path = more ? null : pathOf(node);
  const state = node.name || node.state ? node.state : "dead";
  const title = more ? `${number(more)} more` : node.kind ? `${nameOf(node)} ${node.kind}` : nameOf(node);
  const words = counts(node) || stateOf(node);
  return h(
    path ? "svg:a" : "g",
    {
      class: `node is-${state}${node.name ? " is-group" : ""}${asked ? " is-asked" : ""}`,
      href: path,
      role: path ? null : "img",
      "aria-label": path ? null : more ? `${number(more)} more like these: ${node.kind}, ${stateOf(node)}` : `${title}, ${words}`,
      "aria-current": asked ? "true" : null,
      "data-key": `n${index}`,
    },
    h("rect", { x, y, width: box.width, height: box.height, rx: node.name ? 16 : 6 }),
    h("text.name", { x: x + 12, y: y + 19 }, `${cut(title, 23)} `),
    h("text", { x: x + 12, y: y + 36 }, cut(words, 27)),
  );
}

const counts = (n) =>
  states
    .filter((s) => n.jobs?.[s])
    .map((s) => `${number(n.jobs[s])} ${stateName(s)}`)
    .join(", ");

function asTable(graph) {
  const waits = graph.nodes.map(() => []);
  for (const e of graph.edges) waits[e.waiter].push([graph.nodes[e.on], e]);
  return table(
    [["Job or group"], ["Kind"], ["Queue"], ["State"], ["Waits for"], ["In group"]],
    graph.nodes.map((n, i) => [
      `${n.name ?? ""}/${n.id ?? ""}`,
      [
        nameLink(n),
        n.kind ?? "",
        n.queue ?? "",
        [badge(n.name || n.state ? n.state : "dead", stateOf(n)), counts(n) ? ` ${counts(n)}` : ""],
        waits[i].map(([on, e], at) => [at ? ", " : "", nameLink(on), e.any ? ", whatever its end" : "", e.met ? " (met)" : ""]),
        n.group ? link(groupPath(n.group), n.group) : "",
      ],
    ]),
  );
}
