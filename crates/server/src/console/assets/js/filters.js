// The form above the list. What it says is kept in the address, so that it can be shared and gone back to.
import { html, useEffect, useState } from "./lib.js";
import { fromInput, toInput } from "./format.js";
import { t } from "./i18n.js";
import { live } from "./live.js";
import { Choice, Empty, Field } from "./parts.js";
import { go, to } from "./router.js";
import { ownTopics, seesAll } from "./session.js";
import { useStore } from "./store.js";

const STATES = ["pending", "in_flight", "delivered", "dead", "cancelled"];
const asInput = (text) => toInput(text === "now" ? Date.now() : text);

export function Filters({ query, state }) {
  const { sinks, queues } = useStore(live);
  const [draft, setDraft] = useState(query);
  const key = JSON.stringify(query);
  useEffect(() => setDraft(query), [key]);
  const set = (patch) => setDraft((old) => ({ ...old, ...patch }));
  const apply = (patch = {}) => go("messages", { ...draft, state, ...patch });
  const submit = (event) => {
    event.preventDefault();
    apply();
  };
  const names = ["queue", ...(sinks ?? []).map((sink) => sink.name)];
  if (draft.sink && !names.includes(draft.sink)) names.push(draft.sink);
  const narrowed = ["sink", "topic", "from", "to"].some((name) => query[name]);
  return html`<form class="card filters" onSubmit=${submit} aria-label=${t("find.filters")}>
    <${Choice} label=${t("find.state")} value=${state} onChange=${(next) => apply({ state: next })} options=${STATES.map((name) => [name, t(`state.${name}`)])} />
    <div class="filter-row">
      ${seesAll()
        ? html`<${Field} label=${t("sink")}>${(id) => html`<select id=${id} value=${draft.sink ?? ""} onChange=${(event) => apply({ sink: event.target.value })}>
            <option value="">${t("any")}</option>${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
          </select>`}<//>`
        : null}
      <${Field} label=${t("topic")}>${(id) => html`<input id=${id} list="topics" value=${draft.topic ?? ""} placeholder=${t("any")} spellcheck=${false}
          onInput=${(event) => set({ topic: event.target.value })} onChange=${(event) => apply({ topic: event.target.value })} />
        <datalist id="topics">${(queues ?? []).slice(0, 200).map(({ topic }) => html`<option key=${topic} value=${topic}></option>`)}</datalist>`}<//>
      <${Field} label=${t("due.from")}>${(id) => html`<input id=${id} type="datetime-local" step="1" value=${asInput(draft.from)} onChange=${(event) => apply({ from: fromInput(event.target.value) })} />`}<//>
      <${Field} label=${t("due.to")}>${(id) => html`<input id=${id} type="datetime-local" step="1" value=${asInput(draft.to)} onChange=${(event) => apply({ to: fromInput(event.target.value) })} />`}<//>
      <div class="row filter-end">
        <button class="btn primary">${t("find.do")}</button>
        ${narrowed ? html`<button type="button" class="btn plain" onClick=${() => go("messages", { state })}>${t("find.clear")}</button>` : null}
      </div>
    </div>
  </form>`;
}

/** For whom some topics are: those that can be named. `place` is the screen that wants one. */
export function NameTopic({ state, place = "messages" }) {
  const { queues } = useStore(live);
  const exact = ownTopics().filter((topic) => !topic.includes("*"));
  const names = [...new Set([...exact, ...(queues ?? []).map(({ topic }) => topic)])].slice(0, 50);
  return html`<${Empty}><p>${t("find.name_topic", { topics: ownTopics().join(", ") })}</p>
    <p class="row centred">${names.map((topic) => html`<a key=${topic} class="btn small" href=${to(place, { state, topic })}>${topic}</a>`)}</p><//>`;
}
