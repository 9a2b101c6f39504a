// Settings of this browser.

import { announce } from "./dom.js";

// Without storage they last until the page is left.
const remembered = new Map();

export function remember(name, value) {
  remembered.set(name, value);
  try {
    localStorage.setItem(name, value);
  } catch {
    /* storage is off */
  }
}

export function recall(name) {
  try {
    return remembered.get(name) ?? localStorage.getItem(name);
  } catch {
    return null;
  }
}

// keysOn reports whether single keys do something.
export const keysOn = () => recall("jq-keys") !== "off";

export function switchTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = dark ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  remember("jq-theme", theme);
  announce(`${theme} colours`);
}
