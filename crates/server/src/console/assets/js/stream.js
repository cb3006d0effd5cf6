// Server-sent events by fetch: EventSource cannot send a token.
import { address, headers } from "./api.js";

const WAIT_MIN = 1_000;
const WAIT_MAX = 30_000;

/**
 * Follows events until `signal` says stop, coming back by itself after a break.
 * `onBatch` gets what one read brought, as `[kind, data]` with the data still as text: at ten thousand a second
 * most of it is only counted.
 */
export async function follow({ onBatch, onState, signal }) {
  let wait = WAIT_MIN;
  while (!signal.aborted) {
    try {
      const answer = await fetch(address("v1/events"), { headers: headers(), signal, cache: "no-store" });
      if (!answer.ok || !answer.body) throw new Error(String(answer.status));
      onState("on");
      wait = WAIT_MIN;
      await read(answer.body.getReader(), onBatch);
    } catch {
      // Whatever broke it, the answer is the same: say so, wait, try again.
    }
    if (signal.aborted) break;
    onState("broken");
    await pause(wait * (0.75 + Math.random() / 2), signal);
    wait = Math.min(wait * 2, WAIT_MAX);
  }
  onState("off");
}

async function read(reader, onBatch) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = blocks.pop();
    const batch = blocks.map(event).filter(Boolean);
    if (batch.length) onBatch(batch);
  }
}

function event(block) {
  let kind = "";
  let data = "";
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) kind = line.slice(6).trim();
    else if (line.startsWith("data:")) data += line.slice(5);
  }
  return kind && data ? [kind, data] : null;
}

const pause = (ms, signal) =>
  new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), done()), { once: true });
  });
