// The topics of the built-in queue.
import { html, useState } from "./lib.js";
import { pause, resume } from "./actions.js";
import { count, span } from "./format.js";
import { t } from "./i18n.js";
import { live } from "./live.js";
import { api } from "./api.js";
import { Badge, Busy, Empty, ErrorNote, Title, useAsk } from "./parts.js";
import { to } from "./router.js";
import { may } from "./session.js";
import { useStore } from "./store.js";

const SHOWN = 200;
const ORDERS = {
  topic: (one, two) => (one.topic < two.topic ? -1 : 1),
  pending: (one, two) => two.pending - one.pending,
  ready: (one, two) => two.ready - one.ready,
  leased: (one, two) => two.leased - one.leased,
  dead: (one, two) => two.dead - one.dead,
  overdue: (one, two) => (two.oldest_overdue_ms ?? 0) - (one.oldest_overdue_ms ?? 0),
};

export function Queues() {
  const followed = useStore(live, (state) => state.queues);
  const asked = useAsk((signal) => api.queues(signal), []);
  const [order, setOrder] = useState("topic");
  const [part, setPart] = useState("");
  const all = followed ?? asked.value ?? [];
  const queues = all.filter(({ topic }) => topic.includes(part)).sort(ORDERS[order]);
  const head = (name, words) =>
    html`<th class=${name === "topic" ? "" : "right"} aria-sort=${order === name ? (name === "topic" ? "ascending" : "descending") : null}>
      <button class="sort" onClick=${() => setOrder(name)}>${words}${order === name ? " ↓" : ""}</button></th>`;
  return html`<div class="screen">
    <${Title} words=${t("nav.queues")}>
      <span class="end"><input type="search" aria-label=${t("queues.filter")} placeholder=${t("queues.filter")} value=${part} onInput=${(event) => setPart(event.target.value)} /></span>
    <//>
    ${asked.error ? html`<${ErrorNote} error=${asked.error} again=${asked.again} />` : null}
    <${Busy} on=${asked.busy && !followed} />
    <section class="card" aria-label=${t("nav.queues")}>
      ${queues.length
        ? html`<div class="table-wrap"><table class="cards"><thead><tr>
            ${head("topic", t("topic"))}${head("pending", t("state.pending"))}${head("ready", t("ready"))}${head("leased", t("leased"))}${head("dead", t("state.dead"))}${head("overdue", t("overdue"))}
            <th><span class="sr-only">${t("act")}</span></th></tr></thead>
            <tbody>${queues.slice(0, SHOWN).map((queue) => html`<${Row} key=${queue.topic} queue=${queue} />`)}</tbody></table></div>`
        : html`<${Empty}>${part ? t("find.empty") : t("queues.empty")}<//>`}
      ${queues.length > SHOWN ? html`<p class="quiet">${t("queues.more", { n: queues.length - SHOWN })}</p>` : null}
    </section>
  </div>`;
}

function Row({ queue }) {
  const { topic, paused } = queue;
  const lane = { topic };
  return html`<tr>
    <td data-label=${t("topic")}><span class="row"><a class="break" href=${to("messages", { sink: "queue", topic })}>${topic}</a>${paused ? html`<${Badge} kind="paused" />` : null}</span></td>
    <td data-label=${t("state.pending")} class="right">${count(queue.pending)}</td>
    <td data-label=${t("ready")} class="right">${count(queue.ready)}</td>
    <td data-label=${t("leased")} class="right">${count(queue.leased)}</td>
    <td data-label=${t("state.dead")} class="right">${queue.dead ? html`<a href=${to("dead", { sink: "queue", topic })}>${count(queue.dead)}</a>` : 0}</td>
    <td data-label=${t("overdue")} class="right">${queue.oldest_overdue_ms == null ? "–" : span(queue.oldest_overdue_ms)}</td>
    <td class="actions">${may("operate")
      ? html`<button class="btn small" aria-label=${t(paused ? "queues.resume" : "queues.pause", { topic })} onClick=${() => (paused ? resume(lane) : pause(lane))}>${t(paused ? "act.resume" : "act.pause")}</button>`
      : null}</td>
  </tr>`;
}
