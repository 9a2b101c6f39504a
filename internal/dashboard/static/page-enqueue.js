// A job by hand.

import { h } from "./dom.js";
import { call, get, may, orNull, Problem, session } from "./api.js";
import { field, tell } from "./dialog.js";

export const title = () => "Enqueue";
export const live = false;

export const load = async () => ({ overview: may.read() ? await orNull(get("v1/overview")) : null, key: randomKey() });

// randomKey returns a request key of the form that the server knows to be random. With it, a second click adds no second job.
function randomKey() {
  const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  return `remote-${Array.from(crypto.getRandomValues(new Uint8Array(26)), (byte) => letters[byte % 32]).join("")}`;
}

export function view({ overview, key }, page) {
  if (!may.enqueue()) return [h("h1", { tabindex: "-1" }, "Enqueue"), h("p.notice.calm", {}, "This token may not enqueue jobs.")];
  const queues = session.queues?.filter((q) => !q.endsWith("*")) ?? (overview?.queues ?? []).map((q) => q.queue);
  const failure = h("p.failure", { role: "alert", id: "enqueue-failure", "data-opaque": "" });
  const text = (name, value, more = {}) => h("input", { name, value, autocomplete: "off", ...more });
  return [
    h("div.heading", {}, h("h1", { tabindex: "-1" }, "Enqueue a job")),
    h(
      "form.enqueue",
      { "data-key": key, onsubmit: (e) => submit(e, key, page) },
      field("Queue", text("queue", session.queues?.length && queues.length ? queues[0] : "default", { required: true, list: "queues" })),
      h(
        "datalist",
        { id: "queues" },
        queues.map((q) => h("option", { value: q })),
      ),
      field("Kind", text("kind", "", { required: true }), "the name under which workers have a handler"),
      field("Payload", h("textarea", { name: "payload", rows: "8", spellcheck: "false", value: "{}" }), "JSON"),
      field("Due at (your time zone)", h("input", { name: "run_at", type: "datetime-local", step: "1", value: "" }), "empty for now"),
      field("Retries", text("max_retries", "", { type: "number", min: "0", max: "1000" }), "empty for the server's default"),
      field("Priority", text("priority", "", { type: "number" }), "higher runs first; empty for 0"),
      field("Tags", text("tags", ""), "with commas between them"),
      field("Unique key", text("unique_key", ""), "while a job holds it, no other job with the same key is added"),
      field("Limit key", text("limit_key", ""), "such as a customer, if the queue limits the jobs in flight for each key"),
      failure,
      h("div.buttons", {}, h("button.primary", { type: "submit" }, "Enqueue")),
    ),
  ];
}

async function submit(e, key, page) {
  e.preventDefault();
  const form = e.currentTarget;
  const button = form.querySelector("button[type=submit]");
  const failure = form.querySelector(".failure");
  const v = Object.fromEntries(new FormData(form));
  failure.textContent = "";
  try {
    JSON.parse(v.payload);
  } catch (error) {
    failure.textContent = `The payload is not JSON: ${error.message}`;
    form.querySelector("textarea").focus();
    return;
  }
  const tags = v.tags
    .split(",")
    .map((t) => t.trim())
    .filter(Boolean);
  const rest = {
    queue: v.queue.trim(),
    kind: v.kind.trim(),
    ...(v.run_at ? { run_at: new Date(v.run_at).toISOString() } : {}),
    ...(v.max_retries ? { max_retries: Number(v.max_retries) } : {}),
    ...(v.priority ? { priority: Number(v.priority) } : {}),
    ...(tags.length ? { tags } : {}),
    ...(v.unique_key ? { unique_key: v.unique_key } : {}),
    ...(v.limit_key ? { limit_key: v.limit_key } : {}),
  };
  // The payload is sent as it was typed: as a value of JavaScript, large numbers would lose digits.
  const body = `{"jobs":[${JSON.stringify(rest).slice(0, -1)},"payload":${v.payload}}]}`;
  button.disabled = true;
  try {
    const {
      jobs: [job],
    } = await call("POST", "v1/jobs", body, { "Idempotency-Key": key });
    tell(
      job.duplicate
        ? `No job was added: ${job.id && job.id !== "0" ? `job ${job.id}` : "another job"} holds the unique key.`
        : `Job ${job.id} is enqueued in ${rest.queue}.`,
    );
    if (may.read() && job.id && job.id !== "0") page.leave(`#/jobs/${job.id}`);
    else page.refresh(true);
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    failure.textContent = error.message;
    button.disabled = false;
  }
}
