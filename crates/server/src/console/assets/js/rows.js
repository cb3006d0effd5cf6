// The table of messages.
import { html } from "./lib.js";
import { cancel, fire, replay } from "./actions.js";
import { t } from "./i18n.js";
import { Badge, When } from "./parts.js";
import { to } from "./router.js";
import { may } from "./session.js";

const last = (message) => message.attempts?.at(-1);

export function Rows({ messages, chosen, onChoose, after }) {
  const selectable = Boolean(onChoose) && may("operate");
  const all = messages.every(({ id }) => chosen?.has(id));
  const choose = (id, on) => {
    const next = new Set(chosen);
    if (on) next.add(id);
    else next.delete(id);
    onChoose(next);
  };
  const ended = messages[0]?.ended_at_ms != null;
  return html`<div class="table-wrap"><table class="cards">
    <thead><tr>
      ${selectable
        ? html`<th><input type="checkbox" aria-label=${t("rows.all")} checked=${all} onChange=${(event) => onChoose(event.target.checked ? new Set(messages.map(({ id }) => id)) : new Set())} /></th>`
        : null}
      <th>${t("id")}</th><th>${t("state")}</th><th>${t("target")}</th><th>${t("due")}</th>
      <th>${ended ? t("ended") : t("rows.next")}</th><th class="right">${t("attempts")}</th><th><span class="sr-only">${t("act")}</span></th>
    </tr></thead>
    <tbody>${messages.map(
      (message) => html`<tr key=${message.id} class=${message.changed ? "changed" : ""}>
        ${selectable
          ? html`<td data-label=${t("rows.choose")}><input type="checkbox" aria-label=${t("rows.one", { id: message.id })} checked=${chosen.has(message.id)} onChange=${(event) => choose(message.id, event.target.checked)} /></td>`
          : null}
        <td data-label=${t("id")}><a class="mono break" href=${to("messages", message.id)}>${message.id}</a></td>
        <td data-label=${t("state")}><${Badge} kind=${message.state} /></td>
        <td data-label=${t("target")}><span class="break">${message.sink} <span class="quiet">/</span> ${message.topic}</span></td>
        <td data-label=${t("due")}><${When} ms=${message.deliver_at_ms} far /></td>
        <td data-label=${ended ? t("ended") : t("rows.next")} class=${(ended ? message.ended_at_ms : message.retry_at_ms) == null ? "none" : ""}><${When} ms=${ended ? message.ended_at_ms : message.retry_at_ms} /></td>
        <td data-label=${t("attempts")} class=${`right ${message.attempts_counted ? "" : "none"}`} title=${last(message)?.detail}>${message.attempts_counted}</td>
        <td class="actions"><${RowActions} message=${message} after=${after} /></td>
      </tr>`,
    )}</tbody>
  </table></div>`;
}

function RowActions({ message, after }) {
  const { id, state } = message;
  if (state === "pending" && may("produce")) {
    return html`<button class="btn small plain" aria-label=${t("rows.fire", { id })} onClick=${() => fire(message, after)}>${t("act.fire")}</button>
      <button class="btn small plain" aria-label=${t("rows.cancel", { id })} onClick=${() => cancel(id, after)}>${t("act.cancel")}</button>`;
  }
  if (state === "dead" && may("operate")) {
    return html`<button class="btn small plain" aria-label=${t("rows.replay", { id })} onClick=${() => replay(id, after)}>${t("act.replay")}</button>`;
  }
  return null;
}
