// Questions before a change, and notes after it. A dialog takes the keyboard, and Escape closes it; then the focus returns to where it
// was.

import { announce, h } from "./dom.js";
import { Problem } from "./api.js";

// ask shows a dialog that says what a button will change. It calls run when the user agrees, and closes if run succeeds. Fields are
// elements of a form; run gets the values by name, and a function that shows how far it is and says whether the dialog is still open.
export function ask({ title, text = [], fields = [], label, danger = false, run }) {
  const failure = h("p.failure", { role: "alert" });
  const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const agree = h("button", { type: "submit", class: danger ? "danger" : "primary" }, label);
  const form = h(
    "form",
    {
      onsubmit: async (e) => {
        e.preventDefault();
        agree.disabled = true;
        failure.textContent = "";
        try {
          const done = await run(Object.fromEntries(new FormData(form)), (progress) => {
            agree.textContent = progress;
            return dialog.open;
          });
          dialog.close();
          if (done) tell(done);
        } catch (error) {
          if (!(error instanceof Problem || error instanceof Mistake)) throw error;
          if (!dialog.open) return tell(error.message, true);
          failure.textContent = error.message;
          agree.textContent = label;
          agree.disabled = false;
        }
      },
    },
    h("h2", { id: "dialog-title" }, title),
    [text].flat().map((t) => (t instanceof Node ? t : h("p", {}, t))),
    fields,
    failure,
    h("div.buttons", {}, cancel, agree),
  );
  const dialog = open(form);
  (form.querySelector("input, textarea, select") ?? agree).focus();
}

// A Mistake is an entry that the page itself refuses.
export class Mistake extends Error {}

// open shows content as a modal dialog and returns it.
export function open(...content) {
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => dialog.remove() }, content);
  dialog.addEventListener("click", (e) => {
    if (e.target === dialog) dialog.close();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

export const anyOpen = () => document.querySelector("dialog[open]") !== null;

let hide;

// tell shows a note for a while.
export function tell(text, problem = false) {
  document.querySelector(".note")?.remove();
  clearTimeout(hide);
  const note = h(
    "div.note",
    { class: problem ? "bad" : "" },
    h("span", {}, text),
    h("button.plain", { type: "button", "aria-label": "Close this note", onclick: () => note.remove() }, "×"),
  );
  document.body.append(note);
  announce(text);
  hide = setTimeout(() => note.remove(), problem ? 20000 : 8000);
}

export const field = (label, input, hint) => h("label.field", {}, h("span", {}, label), input, hint ? h("small", {}, hint) : null);
