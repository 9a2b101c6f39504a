// A peer as a process: node peer.mjs NAME SETTINGS, the latter as JSON.
//
// Each line that comes in is a command, {"id": 1, "op": "enqueue", ...}, and is answered by a line with its id, and an error if
// there is one. The numbers of jobs that are begun go out by themselves, {"started": [5, 6]}.
import { createInterface } from "node:readline";

const [name, settings] = [process.argv[2], JSON.parse(process.argv[3])];
const kind = "bench";
const payload = (number) => ({ number, user: 12345, text: "hello there" });
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
		add: (number) => utils.addJob(kind, payload(number), { maxAttempts: 3 }),
		addMany: (numbers) => utils.addJobs(numbers.map((n) => ({ identifier: kind, payload: payload(n), maxAttempts: 3 }))),
		async work(handlers) {
			runner = await run({
				pgPool,
				logger,
				noHandleSignals: true,
				taskList: { [kind]: async (job) => started(job.number) },
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
	const boss = new PgBoss({ ...settings.connection, max: 20, supervise: false, schedule: false });
	boss.on("error", () => {});
	await boss.start();
	await boss.createQueue(kind);
	return {
		add: (number) => boss.send(kind, payload(number)),
		addMany: (numbers) => boss.insert(numbers.map((n) => ({ name: kind, data: payload(n) }))),
		async work(handlers) {
			const batchSize = Math.ceil(handlers / 4);
			for (let i = 0; i < 4; i++) {
				const id = await boss.work(kind, { batchSize, pollingIntervalSeconds: 0.5 }, async (jobs) => {
					for (const job of jobs) started(job.data.number);
					if (jobs.length === batchSize) boss.notifyWorker(id); // there may be more: do not wait for the interval
				});
			}
		},
		stop: () => boss.stop({ graceful: true, wait: true, timeout: 10_000 }),
	};
}

async function enqueue(peer, { first, jobs, callers, batch }) {
	let next = first;
	const end = first + jobs;
	const caller = async () => {
		while (next < end) {
			const from = next;
			next = Math.min(end, from + batch);
			if (batch === 1) await peer.add(from);
			else await peer.addMany(Array.from({ length: next - from }, (_, i) => from + i));
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
