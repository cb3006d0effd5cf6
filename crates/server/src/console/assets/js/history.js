// accepted → due → each try with the target's answer → its end.
import { html } from "./lib.js";
import { span } from "./format.js";
import { known, t } from "./i18n.js";
import { When } from "./parts.js";

const GOOD = ["delivered", "done", "acked"];

/** The steps of a message, in the order of time. */
function steps(message, now = Date.now()) {
  const found = [{ what: t("history.accepted"), at: message.accepted_at_ms ?? null, tone: "done" }];
  const waits = message.state === "pending" && message.deliver_at_ms > now;
  found.push({ what: waits ? t("history.will_be_due") : t("history.due"), at: message.deliver_at_ms, tone: waits ? "next" : "done" });
  const hidden = message.attempts_counted - message.attempts.length;
  if (hidden > 0) found.push({ what: t("history.earlier", { n: hidden }), at: null, tone: "quiet" });
  for (const { at_ms, outcome, detail } of message.attempts) {
    const words = known(`outcome.${outcome}`) ? t(`outcome.${outcome}`) : outcome;
    // The proof is told once, where it belongs.
    const answer = detail === message.receipt ? null : detail;
    found.push({ what: words, at: at_ms, detail: answer, tone: GOOD.includes(outcome) ? "done" : "bad" });
  }
  if (message.state === "pending" && message.retry_at_ms) found.push({ what: t("history.retry"), at: message.retry_at_ms, tone: "next" });
  if (message.state === "in_flight") found.push({ what: t("history.in_flight"), at: null, tone: "next" });
  if (message.state === "delivered") {
    const late = message.delivered_at_ms - message.deliver_at_ms;
    found.push({ what: t("history.delivered"), at: message.delivered_at_ms, note: t("history.after_due", { span: span(Math.max(0, late)) }), receipt: message.receipt, tone: "good" });
  }
  if (message.state === "dead") {
    found.push({ what: t("history.dead"), at: message.ended_at_ms, note: t(`reason.${message.reason}`), tone: "bad" });
  }
  if (message.state === "cancelled") found.push({ what: t("history.cancelled"), at: message.ended_at_ms, tone: "quiet" });
  return found;
}

export function MessageHistory({ message }) {
  return html`<ol class="life">
    ${steps(message).map(
      ({ what, at, detail, note, receipt, tone }, place) => html`<li key=${place} class=${tone}>
        <div class="life-head"><strong>${what}</strong> ${at == null ? null : html`<${When} ms=${at} far=${tone === "next"} />`}</div>
        ${note ? html`<p class="quiet">${note}</p>` : null}
        ${detail ? html`<p class="life-detail">${detail}</p>` : null}
        ${receipt ? html`<p class="life-detail"><span class="quiet">${t("receipt")}</span> <span class="mono break">${receipt}</span></p>` : null}
      </li>`,
    )}
  </ol>`;
}
