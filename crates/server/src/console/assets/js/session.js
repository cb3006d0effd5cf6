// Who is at the page: the token they gave, and what it allows.
import { createStore } from "./store.js";

const KEY = "duly.token";

/** `who` is null until the server has said; `known` is false while it wants a token that it has not got. */
export const session = createStore({ who: null, known: null, error: null });

let held = "";
try {
  // For this tab only: gone when it is closed.
  held = sessionStorage.getItem(KEY) ?? "";
} catch {
  // Then it is gone with a reload, too.
}

export const token = () => held;

function hold(text) {
  held = text;
  try {
    if (text) sessionStorage.setItem(KEY, text);
    else sessionStorage.removeItem(KEY);
  } catch {
    // See above.
  }
}

/** Asks the server who we are. */
export async function greet() {
  const headers = held ? { Authorization: `Bearer ${held}` } : {};
  try {
    const answer = await fetch(new URL("v1/whoami", new URL(".", document.baseURI)), { headers, cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    const who = await answer.json();
    session.set({ who, known: who.known, error: null });
  } catch {
    session.set({ error: "unreachable" });
  }
}

/** Takes a token, and says whether the server knows it. */
export async function enter(text) {
  hold(text.trim());
  await greet();
  const { known } = session.get();
  if (!known) hold("");
  return known;
}

export function leave() {
  hold("");
  session.set({ who: null, known: false });
}

/** The server no longer takes our token. */
export function refused() {
  if (session.get().known) leave();
}

/** Whether we may act in this role. */
export function may(role) {
  const roles = session.get().who?.roles ?? [];
  return roles.includes("admin") || roles.includes(role);
}

/** The patterns of the topics that are ours, if not all are. */
export const ownTopics = () => (seesAll() ? [] : session.get().who.topics);

/** Whether all topics are ours to see: else lists need a topic, and sinks are not shown. */
export function seesAll() {
  const topics = session.get().who?.topics ?? [];
  return topics.length === 0 || topics.includes("*");
}
