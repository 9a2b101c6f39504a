// The view in which a token is entered. The token goes to the server once and is not kept: the browser gets a cookie that scripts
// cannot read.

import { h } from "./dom.js";
import { login, Problem } from "./api.js";
import { field } from "./dialog.js";

// loginView calls begin when the server has taken the token.
export function loginView(begin) {
  const submit = async (e) => {
    e.preventDefault();
    const form = e.currentTarget;
    const box = form.querySelector(".failure");
    box.textContent = "";
    try {
      await login(new FormData(form).get("token").trim());
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      box.textContent = error.status === 401 ? "The server does not know this token." : error.message;
      form.querySelector("input").select();
      return;
    }
    begin();
  };
  return h(
    "main.login",
    { id: "main", "data-key": "login" },
    h("h1", { tabindex: "-1" }, "jq"),
    h(
      "form",
      { onsubmit: submit },
      field(
        "Token",
        h("input", { name: "token", type: "password", required: true, autocomplete: "current-password" }),
        "the one that jobq token new printed",
      ),
      h("p.failure", { role: "alert", "data-opaque": "" }),
      h("button.primary", { type: "submit" }, "Sign in"),
    ),
  );
}
