// What was received.
import { setTimeout as sleep } from "node:timers/promises";

const PATIENCE_MS = 15_000; // how long to wait for the next message
const now = () => performance.timeOrigin + performance.now();

export class Inbox {
  #seen = new Set();
  #late = []; // in ms; below zero it came early
  #again = 0;
  #acked = 0;
  #stop = () => {};
  latest = now();

  /** Begins to receive; `count` different messages are expected, those of any number or of these alone. */
  static async start(system, consumers, count, expected) {
    const inbox = new Inbox();
    inbox.missing = count;
    inbox.expected = expected;
    inbox.#stop = await system.receive(consumers, inbox);
    return inbox;
  }

  /** Notes a message that was received and is not acknowledged yet. */
  got(body) {
    const at = now();
    const [due, number] = body.split(" ", 2).map(Number);
    if (this.#seen.has(number)) {
      this.#again++;
      return;
    }
    this.#seen.add(number);
    this.#late.push(at - due);
    if (!this.expected || this.expected.has(number)) this.missing--;
  }

  /** Notes that one more message is acknowledged. */
  ack() {
    this.latest = now();
    this.#acked++;
  }

  get #isComplete() {
    return this.missing <= 0 && this.#acked >= this.#seen.size + this.#again;
  }

  /** Returns when all messages have come, or when none came for a while after the first could have come. */
  async wait(first) {
    const begin = now() + Math.max(first, 0);
    while (!this.#isComplete && (now() - begin < PATIENCE_MS || now() - this.latest < PATIENCE_MS)) await sleep(20);
    await this.#stop();
  }

  lateness() {
    const late = this.#late.sort((a, b) => a - b);
    const quantile = (part) => late[Math.max(Math.ceil(late.length * part), 1) - 1] ?? 0;
    const early = late.filter((ms) => ms < 0).length;
    return { received: this.#seen.size, again: this.#again, early, p50_ms: quantile(0.5), p99_ms: quantile(0.99) };
  }
}
