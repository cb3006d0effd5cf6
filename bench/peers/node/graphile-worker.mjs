// graphile-worker with its settings for many short jobs: jobs are fetched and completed in batches.
import { EventEmitter } from "node:events";
import { Logger, makeWorkerUtils, run } from "graphile-worker";

const TASK = "bench";
const POLL_MS = 50; // it looks for what has become due this often; 2,000 by default
const LOCAL_QUEUE = { size: 500 };
const COMPLETE_BATCH_DELAY_MS = 0;
const logger = new Logger(() => () => {});

export async function graphileWorker({ url, posters }) {
  const connectionString = `postgres://bench@${url}/postgres`;
  const utils = await makeWorkerUtils({ connectionString, maxPoolSize: posters, logger });
  await utils.migrate();

  const send = async (due, bodies) => {
    const runAt = new Date(due);
    if (bodies.length > 1) await utils.addJobs(bodies.map((body) => ({ identifier: TASK, payload: { body }, runAt })));
    else await utils.addJob(TASK, { body: bodies[0] }, { runAt });
  };

  return {
    sender: async () => ({ send }),
    async receive(consumers, inbox) {
      const events = new EventEmitter();
      events.on("job:complete", () => inbox.ack());
      const worker = {
        connectionString, maxPoolSize: consumers + 2, concurrentJobs: consumers, pollInterval: POLL_MS,
        localQueue: LOCAL_QUEUE, completeJobBatchDelay: COMPLETE_BATCH_DELAY_MS, failJobBatchDelay: COMPLETE_BATCH_DELAY_MS,
      };
      const taskList = { [TASK]: async ({ body }) => inbox.got(body) };
      const runner = await run({ preset: { worker }, events, logger, taskList, noHandleSignals: true });
      return () => runner.stop();
    },
  };
}
