// The keys that do something, and the help that lists them.

import { h } from "./dom.js";
import { may } from "./api.js";
import { anyOpen, open } from "./dialog.js";
import { keysOn, remember, switchTheme } from "./settings.js";

// The pages of the navigation, with the key that follows g.
export const navigation = [
  ["", "Overview", "o"],
  ["jobs", "Jobs", "j"],
  ["failures", "Failures", "f"],
  ["queues", "Queues", "q"],
  ["schedules", "Schedules", "s"],
  ["workers", "Workers", "w"],
];

export function showHelp() {
  const keys = [
    ...navigation.filter(() => may.read()).map(([, name, key]) => [`g ${key}`, name]),
    ...(may.enqueue() ? [["n", "Enqueue a job"]] : []),
    ["/", "Find a job by its id, or filter"],
    ["p", "Pause or continue the updates"],
    ["t", "Light or dark"],
    ["?", "This help"],
  ];
  const dialog = open(
    h("h2", { id: "dialog-title" }, "Keys"),
    h(
      "dl.keys",
      {},
      keys.map(([key, what]) =>
        h(
          "div",
          {},
          h(
            "dt",
            {},
            key.split(" ").map((k) => h("kbd", {}, k)),
          ),
          h("dd", {}, what),
        ),
      ),
    ),
    h(
      "p",
      {},
      h(
        "label",
        {},
        h("input", { type: "checkbox", checked: keysOn(), onchange: (e) => remember("jq-keys", e.currentTarget.checked ? "on" : "off") }),
        " Use these keys",
      ),
    ),
    h("p", {}, h("a", { href: "docs" }, "The HTTP API"), " does all that these pages do. Point at a time to see the exact one."),
    h("div.buttons", {}, h("button.primary", { type: "button", onclick: () => dialog.close() }, "Close")),
  );
  dialog.querySelector("button").focus();
}

let prefix = false; // g was pressed

// onKey handles a key. It calls pause and search of the frame.
export function onKey(e, { pause, search }) {
  if (!keysOn() || e.ctrlKey || e.metaKey || e.altKey || anyOpen() || e.target.closest("input, textarea, select")) return;
  const wasPrefix = prefix;
  prefix = false;
  const page = wasPrefix ? navigation.find(([, , key]) => key === e.key) : null;
  if (page && may.read()) location.hash = `#/${page[0]}`;
  else if (wasPrefix) return;
  else if (e.key === "g") prefix = true;
  else if (e.key === "n" && may.enqueue()) location.hash = "#/enqueue";
  else if (e.key === "p") pause();
  else if (e.key === "t") switchTheme();
  else if (e.key === "?") showHelp();
  else if (e.key === "/") search();
  else return;
  e.preventDefault();
}
