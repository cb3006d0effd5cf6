// What a message carries: hidden until asked for, and always as text.
import { html, useState } from "./lib.js";
import { exact } from "./format.js";
import { t } from "./i18n.js";
import { Choice, Copy } from "./parts.js";

const SHOWN_MAX = 200_000;
const HEX_MAX = 16_384;

function bytesOf({ body, body_base64 }) {
  if (body_base64 != null) return Uint8Array.from(atob(body_base64), (char) => char.charCodeAt(0));
  return new TextEncoder().encode(body ?? "");
}

/** As `hexdump -C` writes it. */
function hex(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, HEX_MAX); at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const digits = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const text = row.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${digits}  ${text}`);
  }
  if (bytes.length > HEX_MAX) lines.push("…");
  return lines.join("\n");
}

/** Laid out, if it is JSON; numbers keep all their digits, as only the space between the parts is changed. */
function pretty(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let depth = 0;
  let out = "";
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const part of text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) ?? []) {
    if (part === "{" || part === "[") out += part + ((depth += 1), line());
    else if (part === "}" || part === "]") out = (depth -= 1, /[{[]\s*$/.test(out) ? out.trimEnd() : out + line()) + part;
    else if (part === ",") out += part + line();
    else out += part === ":" ? ": " : part;
  }
  return out;
}

export function Body({ message }) {
  const [open, setOpen] = useState(false);
  const [as, setAs] = useState(null);
  const kept = message.body != null || message.body_base64 != null;
  const title = html`<h2 id="body-title">${t("body.title")}</h2>`;
  if (!kept) {
    return html`<section class="card" aria-labelledby="body-title">${title}
      <p class="quiet">${["delivered", "cancelled"].includes(message.state) ? t("body.gone") : t("body.none")}</p></section>`;
  }
  if (!open) {
    return html`<section class="card" aria-labelledby="body-title">${title}
      <p class="quiet">${t("body.hidden")}</p>
      <p><button class="btn" onClick=${() => setOpen(true)}>${t("body.show")}</button></p></section>`;
  }
  const bytes = bytesOf(message);
  const json = message.body == null ? null : pretty(message.body);
  const views = [...(message.body == null ? [] : [["text", t("body.text")]]), ...(json == null ? [] : [["json", "JSON"]]), ["hex", t("body.hex")]];
  const view = as ?? (json != null ? "json" : message.body != null ? "text" : "hex");
  const text = { text: message.body, json, hex: view === "hex" ? hex(bytes) : "" }[view];
  const cut = text.length > SHOWN_MAX;
  return html`<section class="card" aria-labelledby="body-title">
    <div class="head">${title}<span class="quiet num">${t("body.bytes", { n: bytes.length })}</span>
      <span class="end"><${Choice} label=${t("body.as")} value=${view} onChange=${setAs} options=${views} /><${Copy} text=${text} />
        <button class="btn small" onClick=${() => setOpen(false)}>${t("body.hide")}</button></span></div>
    <pre class=${`code ${view === "hex" ? "" : "wrap"}`} tabindex="0" role="group" aria-labelledby="body-title">${cut ? text.slice(0, SHOWN_MAX) : text}</pre>
    ${cut ? html`<p class="quiet">${t("body.cut", { n: exact(SHOWN_MAX) })}</p>` : null}
  </section>`;
}
