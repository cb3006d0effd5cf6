// One banner: all is well, or what is not.
import { html } from "./lib.js";
import { known, t } from "./i18n.js";
import { span } from "./format.js";
import { live } from "./live.js";
import { errorText } from "./parts.js";
import { to } from "./router.js";
import { useStore } from "./store.js";

const STORE_PARTS = ["accepting", "claiming", "background"];

/** Everything that is wrong: `{ tone, words, link }`, the worst first. */
function troubles({ ready, stats, sinks, queues, error }) {
  const found = [];
  const add = (tone, words, link) => found.push({ tone, words, link });
  if (error) add("bad", errorText(error));
  const parts = Object.entries(ready?.parts ?? {}).filter(([, state]) => state !== "ok");
  // "store" is the first of its parts that fails: those say it better, unless all of them say the same.
  const ofStore = parts.filter(([part]) => STORE_PARTS.includes(part));
  const isWhole = ofStore.length === STORE_PARTS.length && ofStore.every(([, state]) => state === ofStore[0][1]);
  for (const [part, state] of parts) {
    if (isWhole ? STORE_PARTS.includes(part) : part === "store") continue;
    add(part === "degraded" ? "warn" : "bad", t("health.part", { part: t(`part.${part}`), state }));
  }
  if (stats && !stats.totals.balanced) add("bad", t("health.ledger"));
  for (const sink of sinks ?? []) {
    if (sink.state === "unreachable" || sink.state === "half_open") {
      add("warn", t("health.unreachable", { sink: sink.name, n: sink.pending, error: sink.last_error ?? "" }), to("sinks"));
    }
  }
  for (const { sink, pending } of ready?.orphans ?? []) add("warn", t("health.orphan", { sink, n: pending }), to("sinks"));
  for (const alert of stats?.alerts ?? []) {
    // The parts above say it, and are newer.
    if (["not_ready", "degraded"].includes(alert.name) && parts.length) continue;
    add("warn", `${t(`alert.${alert.name}`)}${alert.scope ? ` (${alert.scope})` : ""}: ${alertDetail(alert)}`);
  }
  const paused = [...(queues ?? []).filter((q) => q.paused).map((q) => q.topic), ...(sinks ?? []).filter((s) => s.paused).map((s) => s.name)];
  if (paused.length) add("info", t("health.paused", { n: paused.length, names: paused.slice(0, 5).join(", ") }), to("queues"));
  return found;
}

const ORDER = ["bad", "warn", "info"];

export function Health() {
  const state = useStore(live);
  if (!state.ready && !state.error) return null;
  const found = troubles(state);
  const tone = ORDER.find((tone) => found.some((trouble) => trouble.tone === tone)) ?? "good";
  const title = { good: t("health.good"), info: t("health.good"), warn: t("health.warn"), bad: t("health.bad") }[tone];
  return html`<section class=${`note health ${tone}`} aria-labelledby="health-title" role=${tone === "bad" ? "alert" : null}>
    <div>
      <h2 id="health-title">${title}</h2>
      ${found.length
        ? html`<ul>${found.map(({ words, link }) => html`<li key=${words}>${words} ${link ? html`<a href=${link}>${t("view")}</a>` : null}</li>`)}</ul>`
        : null}
      ${state.ready ? html`<p class="durability"><span>${t("health.durability")}</span> ${durability(state.ready.durability)}</p>` : null}
    </div>
  </section>`;
}

/** What the words of an alert need, from what it measured. */
const VALUES = {
  overdue: ({ lane, measured_ms, limit_ms }) => ({ lane, waited: span(measured_ms), limit: span(limit_ms) }),
  queue_length: ({ count, limit }) => ({ count, limit }),
  lateness_p99: ({ measured_ms, limit_ms, attempts }) => ({ p99: span(measured_ms), limit: span(limit_ms), attempts }),
  failure_rate: ({ failed, attempts, limit_rate }) => ({ failed, attempts, limit: limit_rate * 100 }),
  dead_letters: ({ count, limit }) => ({ count, limit }),
  orphan: ({ count, sink }) => ({ count, sink }),
  ledger: ({ totals }) => ({ accepted: totals.accepted, sum: ENDS.reduce((sum, end) => sum + totals[end], 0) }),
  not_ready: ({ parts }) => ({ parts: Object.entries(parts).map(([part, why]) => t("health.part", { part: t(`part.${part}`), state: why })).join(t("health.join")) }),
  degraded: ({ why }) => ({ why }),
};
const ENDS = ["pending", "in_flight", "delivered", "cancelled", "dead", "purged"];

/** What an alert says, in the reader's language; one that this page does not know, in the server's words. */
export const alertDetail = ({ name, detail, values }) => (name in VALUES ? t(`alert.${name}.detail`, VALUES[name](values)) : detail);

/** The class in bold, what it survives after it. */
function durability(text) {
  const own = `durability.${text.split(":")[0]}`;
  if (known(own)) text = t(own);
  const at = text.search(/[:：]/);
  return at < 0 ? html`<strong>${text}</strong>` : html`<strong>${text.slice(0, at)}</strong>${text.slice(at)}`;
}

export const overdueWords = (oldest) => (oldest ? t("tile.oldest", { span: span(oldest) }) : t("tile.none"));
