// Dead letters by what killed them.
import { api } from "./api.js";

const PAGE = 1_000;
export const READ_MAX = 5_000;

/** Numbers, ids and times differ from one to the next; what is left of the words is the cause. */
function shape(detail) {
  return detail
    .replace(/\b[0-9a-f]{8}-[0-9a-f-]{27}\b/gi, "…")
    .replace(/\b\d{4}-\d\d-\d\dT[\d:.]+Z?\b/g, "…")
    .replace(/\b[0-9a-z]*\d[0-9a-z]{11,}\b/gi, "…")
    .replace(/\b\d{4,}\b/g, "…")
    .slice(0, 300);
}

/** Reads what there is, at most `READ_MAX`, and puts it in groups: the largest first. */
export async function causes(filter, signal) {
  const groups = new Map();
  let cursor;
  let read = 0;
  do {
    const page = await api.dead({ ...filter, cursor, limit: PAGE }, signal);
    for (const message of page.messages) add(groups, message);
    read += page.messages.length;
    cursor = page.cursor;
  } while (cursor && read < READ_MAX);
  const sorted = [...groups.values()].sort((one, two) => two.messages.length - one.messages.length);
  return { groups: sorted, read, more: Boolean(cursor) };
}

function add(groups, message) {
  const last = message.attempts.at(-1);
  const cause = { reason: message.reason, outcome: last?.outcome ?? "", detail: shape(last?.detail ?? ""), sink: message.sink };
  const key = JSON.stringify(cause);
  if (!groups.has(key)) groups.set(key, { ...cause, key, topics: new Set(), messages: [], first: Infinity, last: 0 });
  const group = groups.get(key);
  group.messages.push(message);
  group.topics.add(message.topic);
  group.first = Math.min(group.first, message.ended_at_ms ?? Infinity);
  group.last = Math.max(group.last, message.ended_at_ms ?? 0);
}
