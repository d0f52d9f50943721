// BullMQ, used as its documentation recommends: addBulk, and one worker process with parallel jobs. Finished jobs are
// removed.
import { createRequire } from "node:module";
import { join } from "node:path";

const { Queue, Worker } = createRequire(join(process.env.PEERS_FOLDER, "package.json"))("bullmq");
const [phase, path, counted] = process.argv.slice(2);
const count = Number(counted);
const connection = { path, maxRetriesPerRequest: null };
const payload = "x".repeat(200);
const BATCH = 100, CONCURRENCY = 100, RATE = 500, TICK_MS = 10, DAY_MS = 86_400_000;
const kept = { removeOnComplete: true };

const queue = new Queue("peers", { connection });
await queue.waitUntilReady();
const seconds = (since) => Number(process.hrtime.bigint() - since) / 1e9;

async function enqueue(delays) {
  for (let sent = 0; sent < count; sent += BATCH) {
    const jobs = Array.from({ length: BATCH }, () => ({ name: "job", data: { payload }, opts: { ...kept, ...delays() } }));
    await queue.addBulk(jobs);
  }
}

// Runs a worker until it has finished `count` jobs. Resolves to the seconds from its first job to its last.
function work(each) {
  return new Promise((resolve) => {
    let began, done = 0;
    const worker = new Worker("peers", async (job) => { began ??= process.hrtime.bigint(); each(job); }, {
      connection, concurrency: CONCURRENCY,
    });
    worker.on("completed", async () => {
      if (++done === count) {
        const took = seconds(began);
        await worker.close();
        resolve(took);
      }
    });
  });
}

async function late() {
  const found = [];
  const worked = work((job) => found.push(Date.now() - (job.timestamp + job.opts.delay)));
  const began = Date.now(), each = (RATE * TICK_MS) / 1000;
  for (let n = 0; n < count / each; n++) {
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, began + n * TICK_MS - Date.now())));
    const delay = () => 500 + Math.floor(Math.random() * 4500);
    await queue.addBulk(Array.from({ length: each }, () => ({ name: "job", data: { payload }, opts: { ...kept, delay: delay() } })));
  }
  await worked;
  return { late_ms: found };
}

const began = process.hrtime.bigint();
const answers = {
  enqueue: async () => { await enqueue(() => ({})); return { seconds: seconds(began) }; },
  drain: async () => ({ seconds: await work(() => {}) }),
  delay: async () => { await enqueue(() => ({ delay: 3 * DAY_MS + Math.floor(Math.random() * DAY_MS) })); return {}; },
  late,
};
console.log(JSON.stringify(await answers[phase]()));
await queue.close();
process.exit(0);
