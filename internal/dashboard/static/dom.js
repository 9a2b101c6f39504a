// Elements from values, and their update in place. Text always becomes a text node, so nothing that comes from a job is ever read
// as markup.

const svgNames = new Set(["svg", "rect", "line", "path", "g", "circle", "text", "svg:a"]); // svg:a is a link within a picture

// h makes an element: h("a.button", {href: "#/"}, "text", otherElement, [more]). A property that begins with "on" is a listener.
// Null, undefined and false are left out.
export function h(what, properties, ...children) {
  const [name, ...classes] = what.split(".");
  const element = svgNames.has(name)
    ? document.createElementNS("http://www.w3.org/2000/svg", name.replace("svg:", ""))
    : document.createElement(name);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  element.jq = { listeners: {}, live: {} };
  for (const [key, value] of Object.entries(properties ?? {})) set(element, key, value);
  append(element, children);
  return element;
}

// Properties that users change too. They are set as properties, and again with each update.
const liveProperties = new Set(["checked", "indeterminate"]);

function set(element, key, value) {
  if (value === null || value === undefined || (value === false && !liveProperties.has(key))) return;
  if (key.startsWith("on")) {
    const event = key.slice(2);
    element.jq.listeners[event] = value;
    element.addEventListener(event, (e) => element.jq.listeners[event]?.(e));
  } else if (liveProperties.has(key)) {
    element.jq.live[key] = value;
    element[key] = value;
  } else if (key === "class") {
    element.setAttribute("class", [element.getAttribute("class"), value].filter(Boolean).join(" "));
  } else {
    element.setAttribute(key, value === true ? "" : value);
    if (key === "value" && element.tagName === "TEXTAREA") element.value = value;
  }
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

// patch makes the children of parent like the new ones. It keeps the elements that are there, so focus, selection, scroll position
// and open details stay. Elements with a data-key are found by it.
export function patch(parent, children) {
  const keyed = new Map();
  for (const child of parent.children) if (child.dataset.key !== undefined) keyed.set(child.dataset.key, child);
  let at = parent.firstChild;
  for (const next of children.flat(Infinity)) {
    if (next === null || next === undefined || next === false) continue;
    const node = next instanceof Node ? next : document.createTextNode(String(next));
    const key = node.dataset?.key;
    let match = key === undefined ? at : keyed.get(key);
    if (match && !alike(match, node)) match = null;
    if (!match) {
      parent.insertBefore(node, at);
    } else {
      if (match === at) at = at.nextSibling;
      else parent.insertBefore(match, at);
      update(match, node);
    }
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function alike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && a.dataset?.key === b.dataset?.key && a.type === b.type;
}

function update(node, next) {
  if (node.nodeType === Node.TEXT_NODE) {
    if (node.data !== next.data) node.data = next.data;
    return;
  }
  const old = node.getAttribute("value");
  for (const { name } of [...node.attributes]) {
    if (!next.hasAttribute(name) && name !== "open") node.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (node.getAttribute(name) !== value && name !== "open") node.setAttribute(name, value);
  }
  if (node.jq && next.jq) {
    for (const [event, listener] of Object.entries(next.jq.listeners)) {
      if (!(event in node.jq.listeners)) node.addEventListener(event, (e) => node.jq.listeners[event]?.(e));
      node.jq.listeners[event] = listener;
    }
    Object.assign(node, (node.jq.live = next.jq.live));
  }
  const value = next.getAttribute("value");
  if (value !== null && value !== old && node !== document.activeElement) node.value = value;
  if (node.dataset.opaque === undefined) patch(node, [...next.childNodes]);
}

// announce tells screen readers what has happened.
export function announce(text) {
  document.getElementById("announce").textContent = text;
}
