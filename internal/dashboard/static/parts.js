// Pieces that several pages are made of.

import { h } from "./dom.js";
import { milliseconds, number, plural, span } from "./format.js";

export const link = (href, ...text) => h("a", { href }, text);

export const section = (title, ...content) => h("section", {}, h("h2", {}, title), content);

export const notice = (kind, ...content) => h("p.notice", { class: kind }, content);

// table makes a table of rows of [key, cells]. A head is [text, class, explanation]; the class n is for numbers. On a phone each cell
// shows the text of its head, so no table is wider than the window. The roles stay when the style makes blocks of the rows.
export function table(heads, rows, extra = {}) {
  return h(
    "div.scroll",
    {},
    h(
      "table",
      { role: "table", ...extra },
      h(
        "thead",
        { role: "rowgroup" },
        h(
          "tr",
          { role: "row" },
          heads.map(([text, kind, title]) =>
            text instanceof Node || text
              ? h("th", { scope: "col", role: "columnheader", class: kind ?? "", title }, text)
              : h("td", { role: "cell" }),
          ),
        ),
      ),
      h(
        "tbody",
        { role: "rowgroup" },
        rows.map(([key, cells, kind]) =>
          h(
            "tr",
            { role: "row", "data-key": key, class: kind ?? "" },
            cells.map((cell, i) => {
              const [text, head] = heads[i];
              return h("td", { role: "cell", class: head ?? "", "data-head": typeof text === "string" ? text : "" }, cell);
            }),
          ),
        ),
      ),
    ),
  );
}

// tabs are links of which one is current.
export const tabs = (label, choices, current, href) =>
  h(
    "nav.tabs",
    { "aria-label": label },
    choices.map(([value, text]) => h("a", { href: href(value), "aria-current": value === current ? "true" : false }, text)),
  );

// facts lists names with their values. Empty values are left out.
export const facts = (pairs) =>
  h(
    "dl.facts",
    {},
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false && value.length !== 0)
      .map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );

const folded = 20; // lines of a document that are shown at once
const deepest = 50; // beyond it most of a document with line breaks would be white space

// document shows a payload or a result. Long ones are folded.
export function documentOf(title, value, text) {
  if (value === undefined && text === undefined) return null;
  const pretty = value !== undefined ? written(value) : text;
  const lines = pretty.split("\n");
  const id = `document-${title.toLowerCase().replaceAll(" ", "-")}`;
  const long = lines.length > folded || pretty.length > 4000;
  const box = (content) => h("pre", { tabindex: "0", role: "group", "aria-label": title }, content);
  return h(
    "section",
    { "data-key": id },
    h("h2", {}, title),
    long
      ? h(
          "details",
          {},
          h("summary", {}, `${plural(lines.length, "line")}, ${number(pretty.length)} characters`),
          box(pretty.length > 200000 ? `${pretty.slice(0, 200000)}\n… (cut here; read the whole with the API)` : pretty),
        )
      : box(pretty),
  );
}

// depth returns how deeply a JSON document is nested.
function depth(line) {
  let now = 0;
  let most = 0;
  let quoted = false;
  for (let i = 0; i < line.length; i++) {
    const mark = line[i];
    if (quoted && mark === "\\") i++;
    else if (mark === '"') quoted = !quoted;
    else if (quoted) continue;
    else if (mark === "[" || mark === "{") most = Math.max(most, ++now);
    else if (mark === "]" || mark === "}") now--;
  }
  return most;
}

// written returns a document as text, with line breaks unless it is deep.
function written(value) {
  try {
    const line = JSON.stringify(value);
    return depth(line) > deepest ? line : JSON.stringify(value, null, 2);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return "It is nested too deeply to be shown here: read it with the API.";
  }
}

// errorText shows an error. What follows its first line, such as a stack, is folded.
export function errorText(text) {
  if (!text) return null;
  const [first, ...rest] = text.split("\n");
  return h(
    "div.error",
    {},
    h("span", {}, first),
    rest.length
      ? h(
          "details",
          {},
          h("summary", {}, `${plural(rest.length, "more line")}`),
          h("pre", { tabindex: "0", role: "group", "aria-label": "the whole error" }, text),
        )
      : null,
  );
}

export const took = (from, to) => (from && to ? span(Date.parse(to) - Date.parse(from)) : "");

export const duration = (text) => (text ? span(milliseconds(text)) : "");
