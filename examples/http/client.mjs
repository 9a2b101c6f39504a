// client.mjs
// Enqueues a job: node client.mjs KIND [PAYLOAD]. Other programs import it.
import { randomUUID } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const server = process.env.JQ_SERVER ?? "http://127.0.0.1:7070";

// post repeats a call until it is answered, or until a time. With a key, the repeat of an enqueue adds nothing twice.
export async function post(path, body, { key, until = Infinity } = {}) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers["Idempotency-Key"] = key;
  if (process.env.JQ_TOKEN) headers.Authorization = `Bearer ${process.env.JQ_TOKEN}`;
  for (let left; (left = until - performance.now()) > 0; ) {
    const signal = AbortSignal.timeout(Math.ceil(Math.min(left, 60_000)));
    const request = { method: "POST", headers, body: JSON.stringify(body), signal };
    const answer = await fetch(server + path, request).catch(() => null); // no connection, or the answer was lost
    const text = await answer?.text().catch(() => null);
    if (answer?.ok && text != null) return JSON.parse(text);
    const again = !answer || answer.ok || [429, 500, 502, 503, 504].includes(answer.status);
    if (!again) throw new Error(text); // a problem document: title and detail say what is wrong
    const wait = 1000 * (answer?.headers.get("Retry-After") ?? 1);
    await setTimeout(Math.max(0, Math.min(wait, until - performance.now())));
  }
  throw new Error("no answer in time");
}

export async function enqueue(jobs) {
  return (await post("/v1/jobs", { jobs }, { key: randomUUID() })).jobs;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [kind, payload = "null"] = process.argv.slice(2);
  const [job] = await enqueue([{ kind, payload: JSON.parse(payload) }]);
  console.log("job", job.id);
}
