// One message with its history.
import { html, useEffect } from "./lib.js";
import { cancel, fire, replay, reschedule } from "./actions.js";
import { api } from "./api.js";
import { Body } from "./body.js";
import { openBulk } from "./bulk.js";
import { span } from "./format.js";
import { t } from "./i18n.js";
import { MessageHistory } from "./history.js";
import { live, onEvent } from "./live.js";
import { Badge, Busy, Copy, Empty, ErrorNote, Title, useAsk } from "./parts.js";
import { to } from "./router.js";
import { may } from "./session.js";
import { useStore } from "./store.js";
import { openReschedule } from "./when.js";

const ENDS = ["delivered", "dead", "cancelled"];

export function One({ id }) {
  const asked = useAsk((signal) => api.get(id, signal), [id]);
  const message = asked.value;
  const stamp = useStore(live, (state) => state.now?.t);
  // Told by an event at once, else with the next look: a busy server may skip ours.
  useEffect(() => onEvent((events) => events.some((event) => event.id === id) && asked.again()), [id]);
  useEffect(() => {
    if (message && !ENDS.includes(message.state) && !asked.busy) asked.again();
  }, [stamp]);
  if (asked.error?.status === 404) {
    return html`<div class="screen"><${Title} words=${t("one.title")} />
      <section class="card"><${Empty}><p>${t("one.unknown")}</p><p class="mono break">${id}</p>
        <p>${t("one.unknown.why")}</p><p><a href=${to("messages")}>${t("nav.messages")}</a></p><//></section></div>`;
  }
  if (asked.error && !message) return html`<${ErrorNote} error=${asked.error} again=${asked.again} />`;
  if (!message) return html`<${Busy} on />`;
  return html`<div class="screen">
    <${Title} words=${t("one.title")}><${Badge} kind=${message.state} />
      <span class="end"><${Actions} message=${message} after=${asked.again} /></span><//>
    <p class="row"><span class="mono break one-id">${id}</span> <${Copy} text=${id} label=${t("copy.id")} /></p>
    ${message.maybe_delivered && message.state !== "delivered" ? html`<p class="note warn">${t("maybe")}</p>` : null}
    <div class="grid-2 one">
      <section class="card" aria-labelledby="history-title"><h2 id="history-title">${t("history.title")}</h2><${MessageHistory} message=${message} /></section>
      <div class="column"><${Details} message=${message} /><${Body} message=${message} /></div>
    </div>
  </div>`;
}

function Actions({ message, after }) {
  const { id, state } = message;
  if (state === "pending" && may("produce")) {
    return html`<button class="btn" onClick=${() => fire(message, after)}>${t("act.fire")}</button>
      <button class="btn" onClick=${() => openReschedule(message, (when) => reschedule(message, when, after))}>${t("act.reschedule")}</button>
      <button class="btn danger" onClick=${() => cancel(id, after)}>${t("act.cancel")}</button>`;
  }
  if (state === "dead" && may("operate")) {
    return html`<button class="btn primary" onClick=${() => replay(id, after)}>${t("act.replay")}</button>
      <button class="btn danger" onClick=${() => openBulk("purge", { ids: [id] }, after)}>${t("act.purge")}</button>`;
  }
  return null;
}

function Details({ message }) {
  const properties = Object.entries(message.properties ?? {});
  const rows = [
    [t("sink"), html`<a href=${to("messages", { sink: message.sink, state: message.state })}>${message.sink}</a>`],
    [t("topic"), html`<a href=${to("messages", { topic: message.topic, state: message.state })}>${message.topic}</a>`],
    [t("tag"), message.tag],
    [t("key"), message.key],
    [t("priority"), String(message.priority)],
    [t("max_lateness"), message.max_lateness_ms == null ? null : span(message.max_lateness_ms)],
    [t("attempts.max"), message.retry?.attempts],
    [t("content_type"), message.content_type],
  ].filter(([, value]) => value != null);
  return html`<section class="card" aria-labelledby="details-title"><h2 id="details-title">${t("details.title")}</h2>
    <dl class="facts">
      ${rows.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}
      ${properties.map(([name, value]) => html`<dt key=${`p-${name}`} class="mono">${name}</dt><dd class="mono">${value}</dd>`)}
    </dl>
  </section>`;
}
