// A driver of the benchmark of peers: one phase of work on one system, then one line of JSON.
// The phases and the lines are described in docs/reference/benchmarks.md.
import { parseArgs } from "node:util";
import { phases } from "./phases.mjs";
import { bullmq } from "./bullmq.mjs";
import { graphileWorker } from "./graphile-worker.mjs";

const numbers = { count: 20_000, batch: 1_000, posters: 64, consumers: 16, body: 256, rate: 2_000, seconds: 10, limit: 30, lead: 0 };
const words = ["system", "phase", "url", ...Object.keys(numbers)];
const { values } = parseArgs({ options: Object.fromEntries(words.map((word) => [word, { type: "string" }])) });
const options = { ...values };
for (const [name, usual] of Object.entries(numbers)) options[name] = Number(values[name] ?? usual);

const systems = { bullmq, "graphile-worker": graphileWorker };
try {
  const system = await systems[options.system](options);
  const result = await phases[options.phase](system, options);
  const { user, system: kernel } = process.cpuUsage();
  console.log(JSON.stringify({ ...result, driver_cpu_s: (user + kernel) / 1e6 }));
  process.exit(0); // Connections that the libraries keep open hold nothing up.
} catch (error) {
  console.error(`${options.system}, ${options.phase}:`, error);
  process.exit(1);
}
