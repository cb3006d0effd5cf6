// What the server does now: polled totals and followed events. Sleeps while paused, and while nobody looks.
import { api } from "./api.js";
import { late, point, rest } from "./series.js";
import { may, seesAll, session } from "./session.js";
import { createStore } from "./store.js";
import { follow } from "./stream.js";

const EVERY = 2_000;
/** Lanes and readiness may cost the store a look: every other time. */
const LANES_EVERY = 2;
const FEED_MAX = 60;
const PARSED_MAX = 400;
const FLUSH = 250;

export const live = createStore({
  on: true,
  stream: "off",
  stats: null,
  ready: null,
  queues: null,
  sinks: null,
  now: null,
  error: null,
  feed: [],
  missed: 0,
});

const listeners = new Set();

/** Calls back with every event that was read in whole; busy servers skip some. */
export function onEvent(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

let running = null;
let looks = 0;
let looking = false;
let wanted = false;
let next = 0;

export const toggle = () => live.set(({ on }) => ({ on: !on }));

function adjust() {
  const awake = live.get().on && document.visibilityState === "visible" && may("read");
  if (awake && !running) start();
  if (!awake && running) stop();
}

live.watch(adjust);
// It begins once it is known who looks.
session.watch(({ known }) => {
  adjust();
  // What one saw is not for the next.
  if (!known && live.get().stats) live.set({ stats: null, ready: null, queues: null, sinks: null, now: null, error: null, feed: [], missed: 0 });
});
document.addEventListener("visibilitychange", adjust);

function start() {
  running = new AbortController();
  const { signal } = running;
  looks = 0;
  rest();
  poll(signal);
  // Who sees some topics only may not follow them all at once.
  if (seesAll()) follow({ onBatch, onState: (stream) => live.set({ stream }), signal });
}

function stop() {
  clearTimeout(next);
  running.abort();
  running = null;
}

async function poll(signal) {
  looking = true;
  const lanes = looks % LANES_EVERY === 0;
  looks += 1;
  try {
    const [stats, queues, sinks, ready] = await Promise.all([
      api.stats(signal),
      lanes ? api.queues(signal) : live.get().queues,
      lanes && seesAll() ? api.sinks(signal) : live.get().sinks,
      lanes ? api.ready(signal) : live.get().ready,
    ]);
    const all = [...(queues ?? []), ...(sinks ?? [])];
    const due = all.reduce((sum, lane) => sum + lane.ready, 0);
    const oldest = all.reduce((most, lane) => Math.max(most, lane.oldest_overdue_ms ?? 0), 0);
    live.set({ stats, queues, sinks, ready, now: { ...point(stats, due), oldest }, error: null });
  } catch (error) {
    if (signal.aborted) return;
    // A server whose store fails still says so: which part, and why.
    const ready = await api.ready(signal).catch(() => live.get().ready);
    if (signal.aborted) return;
    live.set({ error, ready });
  }
  looking = false;
  if (signal.aborted) return;
  clearTimeout(next);
  // What was asked for meanwhile may have come too late for this look.
  next = setTimeout(() => !signal.aborted && poll(signal), wanted ? 0 : EVERY);
  wanted = false;
}

/** Looks at once, also at the lanes: something was just changed here. */
export function refresh() {
  if (!running) return;
  looks = 0;
  wanted = looking;
  if (looking) return;
  clearTimeout(next);
  poll(running.signal);
}

let waiting = [];
let timer = 0;
let number = 0;

function onBatch(batch) {
  let parsed = 0;
  for (const [kind, text] of batch) {
    // The rare ones always; of the many, enough to show and to measure.
    const many = kind === "accepted" || kind === "delivered";
    if (many && parsed >= PARSED_MAX) continue;
    parsed += 1;
    const event = { ...JSON.parse(text), kind, at: Date.now(), key: (number += 1) };
    if (kind === "delivered") late(event.lateness_ms);
    if (kind === "missed") live.set(({ missed }) => ({ missed: missed + event.count }));
    waiting.push(event);
  }
  timer ||= setTimeout(flush, FLUSH);
}

function flush() {
  timer = 0;
  const fresh = waiting;
  waiting = [];
  live.set(({ feed }) => ({ feed: [...fresh.slice(-FEED_MAX).reverse(), ...feed].slice(0, FEED_MAX) }));
  for (const listener of [...listeners]) listener(fresh);
}
