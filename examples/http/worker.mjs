// Runs jobs from a server over HTTP, until Ctrl-C: node worker.mjs. It needs no packages.
const server = process.env.JQ_SERVER ?? "http://127.0.0.1:7070";
const worker = `node-${process.pid}`;
const lease = 30; // seconds

async function post(path, body) {
  const headers = { "Content-Type": "application/json" };
  if (process.env.JQ_TOKEN) headers.Authorization = `Bearer ${process.env.JQ_TOKEN}`;
  const answer = await fetch(server + path, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

async function handle(job) {
  return { echo: job.payload };
}

// keepAlive extends the lease while the job runs. If the lease is lost, the worker must stop at once.
function keepAlive(job) {
  return setInterval(async () => {
    const { results } = await post("/v1/extend", { jobs: [job], lease: `${lease}s` });
    if (results[0].status !== "ok" && results[0].status !== "busy") {
      console.log("job", job.id, "was lost:", results[0].status);
      process.exit(1);
    }
  }, (lease * 1000) / 3);
}

async function run({ id, token, ...job }) {
  const beats = keepAlive({ id, token });
  let path, end;
  try {
    [path, end] = ["/v1/ack", { id, token, result: await handle(job) }];
  } catch (error) {
    [path, end] = ["/v1/nack", { id, token, error: String(error) }];
  }
  clearInterval(beats);
  const { results } = await post(path, { jobs: [end] });
  console.log("job", id, results[0].status, results[0].state ?? "");
}

for (;;) {
  const { jobs } = await post("/v1/claim", { worker, lease: `${lease}s`, wait: "20s" });
  for (const job of jobs) await run(job);
}
