// What a driver does with a system, which has
//   sender()                   one client: send(due in ms, bodies) is settled when all are accepted
//   receive(consumers, inbox)  passes what arrives to the inbox, acknowledges it, and says so; gives what stops it
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { Inbox } from "./inbox.mjs";

const FAR_MS = 3_600_000; // comes after the end of the benchmark
const now = () => performance.timeOrigin + performance.now();

/** Begins with the due time in ms and the number of the message; receivers read both. */
const body = (due, number, size) => `${due} ${number} `.padEnd(size, "x");
const bodies = (due, first, count, size) => Array.from({ length: count }, (_, i) => body(due, first + i, size));

function rate(accepted, began) {
  const seconds = (now() - began) / 1_000;
  return { accepted, seconds, per_s: accepted / seconds };
}

/** Sends by one client in batches until all is sent or the time is over. Nothing becomes due. */
async function batch(system, options) {
  const client = await system.sender();
  const began = now();
  const due = Math.trunc(began) + FAR_MS;
  let sent = 0;
  while (sent < options.count && now() - began < options.limit * 1_000) {
    const size = Math.min(options.batch, options.count - sent);
    await client.send(due, bodies(due, sent, size, options.body));
    sent += size;
  }
  return rate(sent, began);
}

const connect = (system, count) => Promise.all(Array.from({ length: count }, () => system.sender()));

/** Does the same by many posters at once, each message in a call of its own. */
async function single(system, options) {
  const clients = await connect(system, options.posters);
  const began = now();
  const due = Math.trunc(began) + FAR_MS;
  let next = 0;
  await Promise.all(clients.map(async (client) => {
    while (next < options.count && now() - began < options.limit * 1_000) {
      await client.send(due, bodies(due, next++, 1, options.body));
    }
  }));
  return rate(next, began);
}

/**
 * Sends at a steady rate, each message due 2 s after its send, and measures when each is received. A system that accepts less than the
 * rate is sent less.
 */
async function late(system, options) {
  const [delay, tick, senders] = [2_000, 10, 16];
  const clients = await connect(system, senders);
  const span = options.seconds * 1_000;
  const [ticks, size] = [span / tick, (options.rate * tick) / 1_000];
  const inbox = await Inbox.start(system, options.consumers, ticks * size);
  let [next, sent] = [0, 0];
  const began = now();
  await Promise.all(clients.map(async (client) => {
    for (;;) {
      const number = next++;
      if (number >= ticks || now() - began > span) return;
      const wait = began + number * tick - now();
      if (wait > 0) await sleep(wait);
      const due = Math.trunc(now()) + delay;
      await client.send(due, bodies(due, number * size, size, options.body));
      sent += size;
    }
  }));
  const sent_per_s = sent / (Math.max(now() - began, span) / 1_000);
  inbox.missing -= ticks * size - sent;
  await inbox.wait(delay);
  return { ...inbox.lateness(), sent, sent_per_s };
}

/**
 * Sends messages that are all due at one instant, as many as are accepted before it, and measures when the last of them is received and
 * acknowledged.
 */
async function burst(system, options) {
  const client = await system.sender();
  const began = now();
  const due = Math.trunc((began + options.lead) / 1_000) * 1_000;
  let sent = 0;
  while (sent < options.count && now() < due) {
    const size = Math.min(options.batch, options.count - sent);
    await client.send(due, bodies(due, sent, size, options.body));
    sent += size;
  }
  const accepted = rate(sent, began);
  const spare_s = (due - now()) / 1_000; // below zero, the last batch was accepted after the instant
  const inbox = await Inbox.start(system, options.consumers, sent);
  await inbox.wait(due - now());
  return { ...accepted, spare_s, ...inbox.lateness(), burst_s: (inbox.latest - due) / 1_000 };
}

/** Sends while the server is killed, and after its restart counts what was accepted and does not come. */
async function crash(system, options) {
  const clients = await connect(system, options.posters);
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const accepted = new Set();
  let [next, ended, enough] = [0, false, () => {}];
  const loaded = new Promise((resolve) => (enough = resolve));
  const load = async (client) => {
    while (!ended) {
      const [number, due] = [next++, Math.trunc(now()) + 2_000];
      await client.send(due, bodies(due, number, 1, options.body));
      if (!ended && accepted.add(number).size >= options.count) enough();
    }
  };
  for (const client of clients) load(client).catch(() => {}); // the end of the server is the end of the load
  await Promise.race([loaded, sleep(5_000)]);
  console.log(JSON.stringify({ event: "kill" }));
  await expect(lines, "killed");
  await sleep(200); // what is answered lies in the buffers of the connections
  ended = true;
  console.log(JSON.stringify({ event: "counted" }));
  await expect(lines, "restarted");
  const inbox = await Inbox.start(system, options.consumers, accepted.size, accepted);
  await inbox.wait(2_000);
  return { ...inbox.lateness(), accepted: accepted.size, missing: inbox.missing };
}

async function expect(lines, word) {
  const { value } = await lines.next();
  if (value !== word) throw new Error(`expected ${word}, read ${value}`);
}

export const phases = { batch, single, late, burst, fill: batch, crash };
