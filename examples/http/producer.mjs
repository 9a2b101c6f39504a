// Enqueues a job over HTTP: node producer.mjs KIND [PAYLOAD]. It needs no packages.
import { randomUUID } from "node:crypto";

const server = process.env.JQ_SERVER ?? "http://127.0.0.1:7070";

async function enqueue(jobs) {
  // If an answer is lost, a repeat with the same key returns the first answer and adds no second job.
  const headers = { "Content-Type": "application/json", "Idempotency-Key": randomUUID() };
  if (process.env.JQ_TOKEN) headers.Authorization = `Bearer ${process.env.JQ_TOKEN}`;
  for (let attempt = 0; attempt < 5; attempt++) {
    try {
      const answer = await fetch(`${server}/v1/jobs`, { method: "POST", headers, body: JSON.stringify({ jobs }) });
      const body = await answer.json();
      if (answer.ok) return body.jobs;
      if (answer.status < 500) throw new Error(body.detail, { cause: "refused" });
    } catch (error) {
      if (error.cause === "refused") throw error;
      console.error("again, for", error.message);
    }
  }
  throw new Error("the server does not answer");
}

const [kind, payload = "null"] = process.argv.slice(2);
for (const job of await enqueue([{ kind, payload: JSON.parse(payload) }])) console.log("job", job.id);
