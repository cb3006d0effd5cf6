// BullMQ: one queue object and one worker with so many jobs at once, as its guides show.
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";

const NAME = "bench";
const CLEAN = { removeOnComplete: true }; // what is done takes no memory

export function bullmq({ url }) {
  const [host, port] = url.split(":");
  const connect = () => {
    const redis = new Redis({ host, port: Number(port), maxRetriesPerRequest: null });
    redis.on("error", () => {}); // a killed server; the calls fail or are made again
    return redis;
  };
  const queue = new Queue(NAME, { connection: connect() });
  queue.on("error", () => {});

  const job = (due, body) => ({ name: NAME, data: body, opts: { delay: Math.max(0, due - Date.now()), ...CLEAN } });
  const send = async (due, bodies) => {
    const jobs = bodies.map((body) => job(due, body));
    if (jobs.length > 1) await queue.addBulk(jobs);
    else await queue.add(NAME, jobs[0].data, jobs[0].opts);
  };

  return {
    async sender() {
      await queue.waitUntilReady();
      return { send };
    },
    async receive(consumers, inbox) {
      const worker = new Worker(NAME, async ({ data }) => inbox.got(data), { connection: connect(), concurrency: consumers });
      worker.on("completed", () => inbox.ack());
      worker.on("error", console.error);
      await worker.waitUntilReady();
      return () => worker.close(true);
    },
  };
}
