// The frame around the pages: addresses, navigation, session, keys. The address after the # names the page and its filters, so a link
// shows the same to others.

import { announce, h, patch } from "./dom.js";
import { logout, may, openSession, Problem, session } from "./api.js";
import { anyOpen, ask } from "./dialog.js";
import { tick } from "./format.js";
import { navigation, onKey, showHelp } from "./keys.js";
import { Live } from "./live.js";
import { loginView } from "./login.js";
import { switchTheme } from "./settings.js";
import * as overview from "./page-overview.js";
import * as jobs from "./page-jobs.js";
import * as job from "./page-job.js";
import * as group from "./page-group.js";
import * as failures from "./page-failures.js";
import * as queues from "./page-queues.js";
import * as schedules from "./page-schedules.js";
import * as workers from "./page-workers.js";
import * as enqueue from "./page-enqueue.js";

// Each page has a title, reads its data with load, and draws it with view.
const routes = [
  [/^$/, overview],
  [/^jobs$/, jobs],
  [/^jobs\/([^/]+)$/, job],
  [/^groups\/([^/]+)$/, group],
  [/^failures$/, failures],
  [/^queues$/, queues],
  [/^queues\/([^/]+)$/, queues],
  [/^schedules$/, schedules],
  [/^schedules\/([^/]+)$/, schedules],
  [/^workers$/, workers],
  [/^workers\/([^/]+)$/, workers],
  [/^enqueue$/, enqueue],
];

let current = null; // what the address names, with the data that was read last
let failure = null; // of the latest reading
let stage = "starting"; // starting, login, ready or refused

const live = new Live(() => refresh(false), drawBar);

// parse reads the address.
function parse() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  for (const [pattern, page] of routes) {
    const match = pattern.exec(path);
    if (!match) continue;
    try {
      return { path, page, params: match.slice(1).map(decodeURIComponent), query: new URLSearchParams(query) };
    } catch {
      /* a percent sign that stands for nothing */
    }
  }
  return { path, page: null, params: [], query: new URLSearchParams() };
}

// visit shows what the address names.
async function visit() {
  const before = current;
  current = { ...parse(), data: null, selected: new Set() };
  const same = before?.path === current.path;
  if (same && before.data) Object.assign(current, { data: before.data, stale: true });
  failure = null;
  Object.assign(current, {
    link: (changes) => address(current.path, current.query, changes),
    go: (changes) => {
      location.hash = address(current.path, current.query, changes);
    },
    leave: (hash) => {
      if (location.hash === hash) refresh(true);
      else location.hash = hash;
    },
    refresh: (all) => refresh(all !== false),
    redraw: draw,
  });
  document.title = `${current.page?.title(current) ?? "Not found"} · jq`;
  if (!same) draw();
  await refresh(true);
  if (!same && before) {
    window.scrollTo(0, 0);
    document.querySelector("#main h1")?.focus({ preventScroll: true });
    announce(document.title);
  }
}

function address(path, query, changes) {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined) next.delete(name);
    else next.set(name, value);
  }
  const text = next.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

// refresh reads what the page shows, and draws it. If it is not asked for by the reader, rows stay where they are while somebody uses
// them.
async function refresh(asked) {
  const shown = current;
  if (stage !== "ready" || !shown.page) return draw();
  if (!asked && (!shown.page.live || anyOpen())) return;
  try {
    const data = await shown.page.load({ ...shown, data: shown.stale ? null : shown.data, held: !asked && inUse() });
    if (shown !== current) return;
    Object.assign(shown, { data, stale: false });
    failure = null;
  } catch (error) {
    if (shown !== current) return;
    if (!(error instanceof Problem)) throw error;
    if (error.status === 401) return askLogin(error);
    failure = error;
    if (error.status === 404 || error.status === 400) shown.data = null;
  }
  draw();
}

// inUse reports whether somebody reads or marks rows, so that they must not move.
function inUse() {
  const selection = document.getSelection();
  return (
    window.scrollY > 120 ||
    current.selected.size > 0 ||
    (selection !== null && !selection.isCollapsed) ||
    document.querySelector("tbody:hover") !== null ||
    (document.activeElement?.closest("tbody") !== null && document.activeElement?.closest("tbody") !== undefined)
  );
}

function draw() {
  const root = document.getElementById("app");
  if (stage === "login") return patch(root, [loginView(begin)]);
  patch(root, [h("header.bar", { "data-key": "bar" }, bar()), h("main", { id: "main", "data-key": `main ${current.path}` }, main())]);
}

function drawBar() {
  const header = document.querySelector("header.bar");
  if (header && stage === "ready") patch(header, bar());
}

function bar() {
  const [section] = current.path.split("/");
  return [
    h("a.brand", { href: "#/" }, "jq"),
    h(
      "nav.pages",
      { "aria-label": "Pages" },
      (may.read() ? navigation : []).map(([path, name]) =>
        h("a", { href: `#/${path}`, "aria-current": section === path ? "page" : false }, name),
      ),
      may.enqueue() ? h("a", { href: "#/enqueue", "aria-current": section === "enqueue" ? "page" : false }, "Enqueue") : null,
    ),
    h(
      "div.tools",
      {},
      session.readOnly ? h("span.badge", {}, "read-only") : null,
      current.page?.live && stage === "ready" ? liveButton() : null,
      h("button.plain", { type: "button", "data-tool": "theme", onclick: switchTheme, "aria-label": "Switch between light and dark" }, "◐"),
      h("button.plain", { type: "button", "data-tool": "help", onclick: showHelp, "aria-label": "Keys and help" }, "?"),
      session.name
        ? h(
            "button.plain",
            { type: "button", "data-tool": "session", onclick: askLogout, "aria-label": `Signed in as ${session.name}: sign out` },
            session.name,
          )
        : null,
    ),
  ];
}

function liveButton() {
  const [text, state] = live.paused
    ? [live.missed ? "paused, out of date" : "paused", "paused"]
    : failure
      ? ["not up to date", "off"]
      : live.connected
        ? ["live", "on"]
        : ["every 5 s", "slow"];
  return h(
    "button.live",
    {
      type: "button",
      class: state,
      "data-tool": "live",
      "aria-pressed": String(live.paused),
      onclick: pause,
      title: "Pause or continue the updates of this page (p)",
    },
    h("span.dot", { "aria-hidden": "true" }),
    h("span", {}, text),
    h("span.unseen", {}, live.paused ? ": continue the updates" : ": pause the updates"),
  );
}

function main() {
  if (!current.page)
    return [h("h1", { tabindex: "-1" }, "Not found"), h("p", {}, "There is no such page. ", h("a", { href: "#/" }, "Go to the overview"))];
  if (stage === "refused")
    return [
      h("h1", { tabindex: "-1" }, "Nothing to see"),
      h("p", {}, "This token may not read jobs. Sign in with a token that has the role viewer or operator."),
    ];
  const trouble = failure
    ? h(
        "p.notice.bad",
        { role: "alert" },
        current.data ? "The latest update failed: " : "",
        failure.message,
        " ",
        h("button.small", { type: "button", onclick: () => refresh(true) }, "Try again"),
      )
    : null;
  if (!current.data) return [h("h1", { tabindex: "-1" }, current.page.title(current)), trouble ?? h("p.quiet.loading", {}, "Loading …")];
  return [trouble, current.page.view(current.data, current)];
}

// askLogin shows the view in which a token is entered.
function askLogin(problem) {
  live.close();
  stage = "login";
  if (current) current = { ...current, data: null }; // the next one to sign in may have other rights, and an answer may be under way
  session.known = false;
  document.title = "Sign in · jq";
  draw();
  const box = document.querySelector("main.login .failure");
  if (problem?.type === "urn:jq:token_expired") box.textContent = "The token has expired.";
  document.querySelector("main.login input").focus();
}

function askLogout() {
  ask({
    title: `Signed in as ${session.name}`,
    text: [`Roles: ${session.roles.join(", ")}.`, session.queues ? `Queues: ${session.queues.join(", ")}.` : "All queues."],
    label: "Sign out",
    run: async () => {
      await logout();
      askLogin();
    },
  });
}

function pause() {
  if (current.page?.live) live.setPaused(!live.paused);
}

function search() {
  const find = () => document.querySelector("[data-search]")?.focus();
  if (current.page === jobs) return find();
  location.hash = "#/jobs";
  window.addEventListener("jq-drawn", find, { once: true });
}

// begin opens the session and shows the first page.
async function begin() {
  try {
    await openSession();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.status === 401) return askLogin(error);
    failure = error;
    stage = "starting";
    current ??= { ...parse(), selected: new Set() };
    draw();
    setTimeout(begin, 3000);
    return;
  }
  stage = may.read() || may.enqueue() ? "ready" : "refused";
  if (!may.read() && may.enqueue() && parse().page !== enqueue) location.hash = "#/enqueue";
  if (may.read()) live.connect();
  await visit();
}

window.addEventListener("hashchange", () => {
  if (stage !== "login") visit().then(() => window.dispatchEvent(new Event("jq-drawn")));
});
window.addEventListener("keydown", (e) => {
  if (stage === "ready") onKey(e, { pause, search });
});
document.querySelector("[data-skip]").addEventListener("click", (e) => {
  e.preventDefault(); // the address names the page
  document.querySelector("#main h1")?.focus();
});
setInterval(tick, 1000);
begin();
