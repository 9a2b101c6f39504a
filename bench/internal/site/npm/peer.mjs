// A peer as a process: node peer.mjs NAME SETTINGS, the latter as JSON.
//
// Each line that comes in is a command, {"id": 1, "op": "enqueue", ...}, and is answered by a line with its id, and an error if
// there is one. The numbers of jobs that are begun go out by themselves, {"started": [5, 6]}.
import { randomBytes } from "node:crypto";
import { createInterface } from "node:readline";

const [name, settings] = [process.argv[2], JSON.parse(process.argv[3])];
const kind = "bench";
const letters = randomBytes(49152).toString("base64"); // text that stores cannot compress, as long as several large payloads
const payload = (number, { text, slow, fails }) => ({
	number,
	user: 12345,
	text: text ? letters.substr((number * 61) % (letters.length - text), text) : "hello there",
	...(slow && { millis: 5 + ((number * 7919) % 796) }), // as the peers in Go
	...(fails && number % fails === 0 && { fails: true }),
});
const say = (message) => process.stdout.write(JSON.stringify(message) + "\n");

// What begins in one turn of the loop is told together.
let begun = [];
function started(number) {
	if (begun.push(number) === 1) {
		setImmediate(() => {
			say({ started: begun });
			begun = [];
		});
	}
}

// What a handler does. It answers whether the job fails.
const failed = new Set();
async function handle(job) {
	started(job.number);
	if (job.millis) await new Promise((over) => setTimeout(over, job.millis));
	if (!job.fails || failed.has(job.number)) return false;
	failed.add(job.number);
	return true;
}

// Calls work with a client in a transaction of the caller's own.
async function inTransaction(pool, work) {
	const client = await pool.connect();
	try {
		await client.query("BEGIN");
		await work(client);
		await client.query("COMMIT");
	} catch (error) {
		await client.query("ROLLBACK");
		throw error;
	} finally {
		client.release();
	}
}

async function graphile() {
	const { makeWorkerUtils, run } = await import("graphile-worker");
	const { Logger } = await import("graphile-worker");
	const { default: pg } = await import("pg");
	const logger = new Logger(() => () => {});
	const pgPool = new pg.Pool({ ...settings.connection, max: 20 });
	pgPool.on("error", () => {});
	const utils = await makeWorkerUtils({ pgPool, logger });
	await utils.migrate();
	let runner;
	return {
		add: (payload) => utils.addJob(kind, payload, { maxAttempts: 3 }),
		addTx: (payload) =>
			inTransaction(pgPool, (client) =>
				client.query("SELECT graphile_worker.add_job($1, $2, max_attempts := 3)", [kind, JSON.stringify(payload)]),
			),
		addMany: (payloads) => utils.addJobs(payloads.map((payload) => ({ identifier: kind, payload, maxAttempts: 3 }))),
		async work(handlers) {
			runner = await run({
				pgPool,
				logger,
				noHandleSignals: true,
				taskList: {
					[kind]: async (job) => {
						if (await handle(job)) throw new Error("this job fails once");
					},
				},
				preset: {
					worker: {
						concurrentJobs: handlers,
						pollInterval: 500,
						localQueue: { size: 500 },
						completeJobBatchDelay: 0,
						failJobBatchDelay: 0,
					},
				},
			});
		},
		async stop() {
			await runner?.stop();
			await utils.release();
			await pgPool.end();
		},
	};
}

async function pgboss() {
	const { default: PgBoss } = await import("pg-boss");
	const { default: pg } = await import("pg");
	const own = new pg.Pool({ ...settings.connection, max: 20 }); // the caller's, for transactions of its own
	const boss = new PgBoss({ ...settings.connection, max: 20, supervise: false, schedule: false });
	boss.on("error", () => {});
	await boss.start();
	await boss.createQueue(kind);
	return {
		add: (payload) => boss.send(kind, payload),
		addTx: (payload) =>
			inTransaction(own, (client) =>
				boss.send(kind, payload, { db: { executeSql: (text, values) => client.query(text, values) } }),
			),
		addMany: (payloads) => boss.insert(payloads.map((data) => ({ name: kind, data }))),
		async work(handlers) {
			const batchSize = Math.ceil(handlers / 4);
			for (let i = 0; i < 4; i++) {
				const id = await boss.work(kind, { batchSize, pollingIntervalSeconds: 0.5 }, async (jobs) => {
					await Promise.all(jobs.map((job) => handle(job.data)));
					if (jobs.length === batchSize) boss.notifyWorker(id); // there may be more: do not wait for the interval
				});
			}
		},
		async stop() {
			await boss.stop({ graceful: true, wait: true, timeout: 10_000 });
			await own.end();
		},
	};
}

async function enqueue(peer, { first, jobs, callers, batch, tx, shape }) {
	let next = first;
	const end = first + jobs;
	const caller = async () => {
		while (next < end) {
			const from = next;
			next = Math.min(end, from + batch);
			if (tx) await peer.addTx(payload(from, shape));
			else if (batch === 1) await peer.add(payload(from, shape));
			else await peer.addMany(Array.from({ length: next - from }, (_, i) => payload(from + i, shape)));
		}
	};
	await Promise.all(Array.from({ length: callers }, caller));
}

const peer = await { "graphile-worker": graphile, "pg-boss": pgboss }[name]();
const ops = {
	enqueue: (c) => enqueue(peer, c),
	work: (c) => peer.work(c.handlers),
	stop: () => peer.stop(),
};
say({ id: 0 });
for await (const line of createInterface({ input: process.stdin })) {
	const command = JSON.parse(line);
	const done = ops[command.op](command).then(
		() => say({ id: command.id }),
		(error) => say({ id: command.id, error: String(error) }),
	);
	if (command.op === "stop") {
		await done;
		break;
	}
}
process.exitCode = 0;
