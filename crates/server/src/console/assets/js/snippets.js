// The same send, as curl and as Rust.
import { write } from "./raw.js";

/** One argument of a shell, whatever is in it. */
const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

export function curl(message, url, withToken) {
  const parts = [`curl ${url}`];
  if (withToken) parts.push(`-H "Authorization: Bearer $DULY_TOKEN"`);
  parts.push(`-d ${quoted(write(message))}`);
  return parts.join(" \\\n  ");
}

const WORDS = { s: "seconds", m: "minutes", h: "hours", d: "days", ms: "millis" };

function delay(value) {
  if (typeof value === "number") return `millis(${value})`;
  const found = /^(\d+)(ms|s|m|h|d)$/.exec(value);
  return found ? `${WORDS[found[2]]}(${found[1]})` : `parse_delay(${text(value)})?`;
}

/** A string of Rust. JSON's own escapes are almost those of Rust. */
const text = (value) =>
  JSON.stringify(value)
    .replace(/\\u([0-9a-f]{4})/g, "\\u{$1}")
    .replace(/\\b/g, "\\u{8}")
    .replace(/\\f/g, "\\u{c}");

export function rust(message) {
  const target = message.sink && message.sink !== "queue" ? `${message.sink}/${message.topic}` : message.topic;
  // A slash would be taken for the end of the sink's name.
  const to = target.includes("/") && (!message.sink || message.sink === "queue") ? `to_sink("queue", ${text(message.topic)})` : `to(${text(target)})`;
  const uses = new Set(["Message"]);
  const lines = [];
  if (message.id) lines.push(`.id(${text(message.id)})`);
  if (message.json !== undefined) lines.push(`.json(&serde_json::json!(${message.json.text}))?`);
  if (message.body !== undefined) lines.push(`.text(${text(message.body)})`);
  if (message.body_base64 !== undefined) lines.push(`.bytes(base64_decoded)`);
  if (message.delay !== undefined) {
    const call = delay(message.delay);
    uses.add(call.slice(0, call.indexOf("(")));
    lines.push(`.after(${call})`);
  }
  if (message.deliver_at !== undefined) {
    uses.add("Timestamp");
    lines.push(`.at(Timestamp::from_millis(${message.deliver_at}))`);
  }
  if (message.level) lines.push(`.level(${text(message.level)})`);
  if (message.tag) lines.push(`.tag(${text(message.tag)})`);
  if (message.key) lines.push(`.key(${text(message.key)})`);
  if (message.priority !== undefined) lines.push(`.priority(${message.priority})`);
  if (message.max_lateness !== undefined) {
    const call = delay(message.max_lateness);
    uses.add(call.slice(0, call.indexOf("(")));
    lines.push(`.max_lateness(${call})`);
  }
  for (const [name, value] of Object.entries(message.properties ?? {})) lines.push(`.property(${text(name)}, ${text(value)})`);
  if (message.retry) {
    uses.add("RetryOverride");
    lines.push(`.retry(RetryOverride { attempts: Some(${message.retry.attempts}), ..RetryOverride::default() })`);
  }
  const body = [`Message::${to}`, ...lines].join("\n        ");
  return `use duly::{${[...uses].sort().join(", ")}};\n\nlet accepted = duly\n    .send(\n        ${body},\n    )\n    .await?;`;
}
