// Find messages: by state, sink, topic and time. Pages stay as they are while the world goes on.
import { html, useEffect, useState } from "./lib.js";
import { api } from "./api.js";
import { openBulk } from "./bulk.js";
import { Filters, NameTopic } from "./filters.js";
import { count } from "./format.js";
import { t } from "./i18n.js";
import { onEvent } from "./live.js";
import { Busy, Empty, ErrorNote, Title, useAsk } from "./parts.js";
import { Rows } from "./rows.js";
import { may, seesAll } from "./session.js";

const PAGE = 50;

/** What the API is asked, from what the address says. */
function filterOf(query, now = Date.now()) {
  const at = (text) => (text === "now" ? now : text ? Number(text) : undefined);
  return { sink: query.sink || undefined, topic: query.topic || undefined, due_from: at(query.from), due_to: at(query.to) };
}

export function Find({ query }) {
  const state = query.state || "pending";
  const key = JSON.stringify(query);
  // Where each page began: the way back is as stable as the way on.
  const [trail, setTrail] = useState([undefined]);
  const [chosen, setChosen] = useState(new Set());
  const cursor = trail.at(-1);
  // Who sees some topics only has to name one of them.
  const blind = !seesAll() && !query.topic;
  const ask = (signal) => (blind ? Promise.resolve({ messages: [] }) : api.list({ state, ...filterOf(query), cursor, limit: PAGE }, signal));
  const page = useAsk(ask, [key, cursor]);
  const changed = useChanges(page.value);
  useEffect(() => {
    setTrail([undefined]);
    setChosen(new Set());
  }, [key]);

  const messages = (page.value?.messages ?? []).map((message) => changed.get(message.id) ?? message);
  const turn = (next) => {
    setTrail(next);
    setChosen(new Set());
  };
  const again = () => {
    changed.clear();
    page.again();
  };
  return html`<div class="screen">
    <${Title} words=${t("nav.messages")}>
      <span class="end"><button class="btn small" onClick=${again}>${t("refresh")}</button></span>
    <//>
    <${Filters} query=${query} state=${state} />
    <section class="card" aria-label=${t("find.results")}>
      <${Tools} state=${state} query=${query} chosen=${chosen} any=${messages.length > 0} after=${() => (setChosen(new Set()), again())} />
      ${page.error ? html`<${ErrorNote} error=${page.error} again=${page.again} />` : null}
      <${Busy} on=${page.busy} />
      ${blind ? html`<${NameTopic} state=${state} />` : page.value && !messages.length ? html`<${Empty}>${t("find.empty")}<//>` : null}
      ${messages.length ? html`<${Rows} messages=${messages} chosen=${chosen} onChoose=${setChosen} after=${again} />` : null}
      ${trail.length > 1 || page.value?.cursor
        ? html`<nav class="pager" aria-label=${t("page.label")}>
            <button class="btn small" disabled=${trail.length < 2} onClick=${() => turn(trail.slice(0, -1))}>← ${t("page.back")}</button>
            <span class="quiet num">${t("page.number", { n: trail.length })}</span>
            <button class="btn small" disabled=${!page.value?.cursor || page.busy} onClick=${() => turn([...trail, page.value.cursor])}>${t("page.next")} →</button>
          </nav>`
        : null}
    </section>
  </div>`;
}

/** What became of the rows on the page since it was asked for, by id. */
function useChanges(page) {
  const [changes, setChanges] = useState(new Map());
  useEffect(() => {
    const own = new Map((page?.messages ?? []).map((message) => [message.id, message]));
    setChanges(new Map());
    return onEvent((events) => {
      const fresh = events.filter((event) => own.has(event.id) && BECOMES[event.kind]);
      if (!fresh.length) return;
      setChanges((old) => {
        const next = new Map(old);
        for (const event of fresh) {
          const before = next.get(event.id) ?? own.get(event.id);
          next.set(event.id, { ...before, ...BECOMES[event.kind](event, before) });
        }
        return next;
      });
    });
  }, [page]);
  return changes;
}

const BECOMES = {
  delivered: (_, before) => ({ state: "delivered", attempts_counted: before.attempts_counted + 1, changed: true }),
  dead: (event) => ({ state: "dead", reason: event.reason, changed: true }),
  cancelled: () => ({ state: "cancelled", changed: true }),
  replayed: () => ({ state: "pending", changed: true }),
  rescheduled: (event) => ({ deliver_at_ms: event.deliver_at_ms, changed: true }),
  failed: (event) => ({ retry_at_ms: event.retry_at_ms, changed: true }),
};

/** What can be done to the chosen, or to all that match. */
function Tools({ state, query, chosen, any, after }) {
  const verbs = { pending: ["cancel", "reschedule", "fire"], dead: ["replay", "purge"] }[state] ?? [];
  if (!verbs.length || !may("operate")) return null;
  const some = chosen.size > 0;
  const { sink, topic, due_from, due_to } = filterOf(query);
  const selection = some ? { ids: [...chosen] } : { filter: { sink, topic, due_from, due_to } };
  return html`<div class="tools" role="group" aria-label=${t("find.tools")}>
    <span>${some ? t("find.chosen", { n: chosen.size }) : t("find.all")}</span>
    ${verbs.map(
      (verb) => html`<button key=${verb} class=${`btn small ${["cancel", "purge"].includes(verb) ? "danger" : ""}`} disabled=${!any}
        onClick=${() => openBulk(verb, selection, after)}>${t(`act.${verb}`)}${some ? ` (${count(chosen.size)})` : "…"}</button>`,
    )}
  </div>`;
}
