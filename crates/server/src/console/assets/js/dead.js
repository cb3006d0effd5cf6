// What was given up, by cause.
import { html, useState } from "./lib.js";
import { openBulk } from "./bulk.js";
import { causes, READ_MAX } from "./causes.js";
import { NameTopic } from "./filters.js";
import { count, exact } from "./format.js";
import { t } from "./i18n.js";
import { live } from "./live.js";
import { Badge, Busy, Empty, ErrorNote, Title, useAsk, When } from "./parts.js";
import { to } from "./router.js";
import { Rows } from "./rows.js";
import { may, seesAll } from "./session.js";
import { useStore } from "./store.js";

const SHOWN = 50;

export function Dead({ query }) {
  const filter = { sink: query.sink || undefined, topic: query.topic || undefined };
  const blind = !seesAll() && !query.topic;
  const ask = (signal) => (blind ? Promise.resolve({ groups: [], read: 0, more: false }) : causes(filter, signal));
  const asked = useAsk(ask, [query.sink, query.topic]);
  const total = useStore(live, (state) => state.stats?.totals.dead);
  const found = asked.value;
  const stale = found && !blind && total != null && !filter.sink && !filter.topic && !found.more && total !== found.read;
  const act = (what, selection) => openBulk(what, selection, asked.again);
  return html`<div class="screen">
    <${Title} words=${t("nav.dead")}>
      <span class="end">
        <button class="btn small" onClick=${asked.again}>${stale ? t("dead.stale") : t("refresh")}</button>
        ${may("operate") && found?.read
          ? html`<button class="btn small" onClick=${() => act("replay", { filter })}>${t("dead.replay_all")}</button>
              <button class="btn small danger" onClick=${() => act("purge", { filter })}>${t("dead.purge_all")}</button>`
          : null}
      </span><//>
    ${asked.error ? html`<${ErrorNote} error=${asked.error} again=${asked.again} />` : null}
    <${Busy} on=${asked.busy} />
    ${found?.more ? html`<p class="note warn">${t("dead.more", { n: exact(READ_MAX) })}</p>` : null}
    ${found && !found.read
      ? html`<section class="card">${blind ? html`<${NameTopic} place="dead" />` : html`<${Empty}>${t("dead.empty")}<//>`}</section>`
      : null}
    ${(found?.groups ?? []).map((group) => html`<${Group} key=${group.key} group=${group} act=${act} after=${asked.again} />`)}
  </div>`;
}

function Group({ group, act, after }) {
  const [open, setOpen] = useState(false);
  const { messages, reason, sink, topics, detail, outcome } = group;
  const ids = () => ({ ids: messages.map(({ id }) => id) });
  const topicWords = [...topics].slice(0, 4).join(", ") + (topics.size > 4 ? " …" : "");
  return html`<section class="card cause" aria-label=${t("dead.group", { n: messages.length, reason: t(`reason.${reason}`) })}>
    <div class="head">
      <b class="cause-count num">${count(messages.length)}</b>
      <${Badge} kind="dead" label=${t(`reason.${reason}`)} />
      <span>${sink === "queue" ? t("queue.name", { topic: topicWords }) : html`<a href=${to("dead", { sink })}>${sink}</a> / ${topicWords}`}</span>
      <span class="end">
        ${may("operate")
          ? html`<button class="btn small primary" onClick=${() => act("replay", ids())}>${t("act.replay")}…</button>
              <button class="btn small danger" onClick=${() => act("purge", ids())}>${t("act.purge")}…</button>`
          : null}
      </span>
    </div>
    ${detail ? html`<p class="life-detail">${detail}</p>` : outcome ? html`<p class="quiet">${outcome}</p>` : null}
    <p class="quiet cause-foot">${t("dead.between")} <${When} ms=${group.first} /> – <${When} ms=${group.last} />
      <button class="btn small plain" aria-expanded=${open ? "true" : "false"} onClick=${() => setOpen(!open)}>${open ? t("dead.hide") : t("dead.show", { n: messages.length })}</button></p>
    ${open ? html`<${Rows} messages=${messages.slice(0, SHOWN)} after=${after} />` : null}
    ${open && messages.length > SHOWN
      ? html`<p><a href=${to("messages", { state: "dead", sink, topic: topics.size === 1 ? [...topics][0] : "" })}>${t("dead.rest", { n: messages.length - SHOWN })}</a></p>`
      : null}
  </section>`;
}
