// The last minutes, as the plots show them.
const KEPT = 300;
const SAMPLES_MAX = 2_000;
const PASSED_MIN = 0.9;

/** One list per line, the first is the time in seconds, as uPlot wants it. */
const NAMES = ["t", "accepted", "delivered", "failed", "p50", "p99", "max", "pending", "due"];

const lines = Object.fromEntries(NAMES.map((name) => [name, []]));
let samples = [];
let seen = 0;
let before = null;
let last = null;

/** How late one delivery was. With too many of them a fair choice is kept. */
export function late(ms) {
  seen += 1;
  if (samples.length < SAMPLES_MAX) samples.push(ms);
  else {
    const place = Math.floor(Math.random() * seen);
    if (place < SAMPLES_MAX) samples[place] = ms;
  }
}

function quantiles() {
  if (!samples.length) return { p50: null, p99: null, max: null };
  const sorted = samples.sort((a, b) => a - b);
  const at = (q) => sorted[Math.min(sorted.length - 1, Math.ceil(q * sorted.length) - 1)];
  return { p50: at(0.5), p99: at(0.99), max: sorted.at(-1) };
}

/** Adds a point: rates come from the totals, which hold for all nodes. */
export function point(stats, due, now = Date.now()) {
  const { totals } = stats;
  const passed = before ? (now - before.now) / 1_000 : 0;
  // Looked at twice in a moment: too short for a rate.
  if (before && passed < PASSED_MIN) return { ...last, pending: totals.pending, due };
  const per = (name, count) => (before && passed > 0 && passed < 30 ? Math.max(0, count - before[name]) / passed : null);
  const next = {
    t: now / 1_000,
    accepted: per("accepted", totals.accepted),
    delivered: per("delivered", totals.delivered),
    failed: per("failed", stats.failed + totals.dead + totals.purged),
    ...quantiles(),
    pending: totals.pending,
    due,
  };
  last = next;
  before = { now, accepted: totals.accepted, delivered: totals.delivered, failed: stats.failed + totals.dead + totals.purged };
  samples = [];
  seen = 0;
  for (const name of NAMES) {
    lines[name].push(next[name]);
    if (lines[name].length > KEPT) lines[name].shift();
  }
  return next;
}

/** The chosen lines, for a plot. */
export const data = (...names) => ["t", ...names].map((name) => lines[name]);

/** After a pause the next point must not spread over it. */
export function rest() {
  before = null;
  samples = [];
  seen = 0;
}
