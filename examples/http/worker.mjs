// Runs jobs from a server over HTTP, until Ctrl-C: node worker.mjs. It needs no packages, but client.mjs beside it.
import { setTimeout } from "node:timers/promises";
import { post } from "./client.mjs";

const worker = `node-${process.pid}`;
const lease = 30; // seconds

async function handle(job) {
  return { echo: job.payload };
}

// keepAlive extends the lease while the job runs. If the lease is lost, or may be, the work must stop at once.
async function keepAlive(job, done) {
  let held = performance.now() + 900 * lease; // the claim's answer took a while
  while (await setTimeout((1000 * lease) / 3, true, { signal: done }).catch(() => false)) {
    const sent = performance.now();
    const status = await post("/v1/extend", { jobs: [job], lease: `${lease}s` }, { until: held }).then(
      ({ results }) => results[0].status,
      (error) => error.message,
    );
    if (status === "ok") held = sent + 1000 * lease;
    else if (status !== "busy" && !done.aborted) {
      console.log("job", job.id, "was lost:", status);
      process.exit(1);
    }
  }
}

async function run({ id, token, ...job }) {
  const done = new AbortController();
  keepAlive({ id, token }, done.signal);
  let path, end;
  try {
    [path, end] = ["/v1/ack", { id, token, result: await handle(job) }];
  } catch (error) {
    [path, end] = ["/v1/nack", { id, token, error: String(error) }];
  }
  done.abort();
  const { results } = await post(path, { jobs: [end] });
  console.log("job", id, results[0].status, results[0].state ?? "");
}

for (;;) {
  const { jobs } = await post("/v1/claim", { worker, lease: `${lease}s`, wait: "20s" });
  for (const job of jobs) await run(job);
}
