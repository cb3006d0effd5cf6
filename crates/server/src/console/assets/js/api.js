// Every call to the server goes through here.
import { write } from "./raw.js";
import { token, refused } from "./session.js";

/** Where the page is, is where the API is: also behind a proxy that gives Duly a path of its own. */
const BASE = new URL(".", document.baseURI);

export const address = (path) => new URL(path.replace(/^\//, ""), BASE);

/** What the server said no to, in its own words. */
class ApiError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `HTTP ${status}`);
    this.status = status;
    this.code = problem.code ?? "unknown";
    this.path = problem.path;
    this.state = problem.state;
  }
}

export function headers(more = {}) {
  const held = token();
  return held ? { ...more, Authorization: `Bearer ${held}` } : more;
}

async function call(method, path, { query, body, text: written, signal, also = [] } = {}) {
  const url = address(path);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value != null && value !== "") url.searchParams.set(name, value);
  }
  const init = { method, signal, headers: headers(), cache: "no-store", credentials: "same-origin" };
  if (body !== undefined || written !== undefined) {
    init.body = written ?? JSON.stringify(body);
    init.headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(url, init);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { code: "unreachable", detail: null });
  }
  const text = await answer.text();
  const value = text && /json/.test(answer.headers.get("content-type") ?? "") ? JSON.parse(text) : text;
  if (answer.ok || also.includes(answer.status)) return value;
  if (answer.status === 401) refused();
  if (typeof value === "object" && value) throw new ApiError(answer.status, value);
  // Not our server's words: a proxy before it that does not reach it, or something else altogether.
  throw new ApiError(answer.status, answer.status >= 502 ? { code: "unreachable" } : { detail: `HTTP ${answer.status}` });
}

/** So many queues are read for a page that shows 200 of them by any column. */
const QUEUES_MAX = 10_000;

const at = (id) => `v1/messages/${encodeURIComponent(id)}`;
const lane = (lane) =>
  lane.topic === undefined ? `v1/sinks/${encodeURIComponent(lane.sink)}` : `v1/queues/${encodeURIComponent(lane.topic)}`;

export const api = {
  stats: (signal) => call("GET", "v1/stats", { signal }),
  ready: (signal) => call("GET", "readyz", { signal, also: [503] }),
  forecast: (query, signal) => call("GET", "v1/forecast", { query, signal }),
  queues: async (signal) => {
    const queues = [];
    let cursor;
    do {
      const page = await call("GET", "v1/queues", { query: { cursor }, signal });
      queues.push(...page.queues);
      cursor = page.cursor;
    } while (cursor && queues.length < QUEUES_MAX);
    return queues;
  },
  sinks: (signal) => call("GET", "v1/sinks", { signal }).then((answer) => answer.sinks),
  nodes: (signal) => call("GET", "v1/nodes", { signal }),
  levels: (signal) => call("GET", "v1/levels", { signal }),
  list: (query, signal) => call("GET", "v1/messages", { query, signal }),
  dead: (query, signal) => call("GET", "v1/dead", { query, signal }),
  get: (id, signal) => call("GET", at(id), { signal }),
  send: (message) => call("POST", "v1/messages", { text: write(message) }),
  cancel: (id) => call("DELETE", at(id)),
  reschedule: (id, when) => call("PATCH", at(id), { body: when }),
  fire: (id) => call("POST", `${at(id)}/fire`),
  /** `what`: cancel, reschedule, fire, replay or purge. */
  many: (what, selection) =>
    call("POST", `${["replay", "purge"].includes(what) ? "v1/dead" : "v1/messages"}/${what}`, { body: selection }),
  /** `what`: pause, resume or probe. */
  lane: (which, what) => call("POST", `${lane(which)}/${what}`),
};
