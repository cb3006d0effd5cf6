// Saying when: after a while, at a time, or by the name of a level.
import { html, useState } from "./lib.js";
import { fromInput, toInput } from "./format.js";
import { t } from "./i18n.js";
import { openDialog } from "./dialog.js";
import { Choice } from "./parts.js";

const PRESETS = ["5s", "1m", "15m", "1h", "1d"];

/** What the API is told. */
export function whenOf({ kind, delay, at, level }) {
  if (kind === "at") return { deliver_at: fromInput(at) };
  if (kind === "level") return { level };
  if (kind === "now") return {};
  return { delay: /^\d+$/.test(delay) ? Number(delay) : delay };
}

export const isSet = ({ kind, delay, at, level }) =>
  kind === "now" || Boolean({ delay, at: fromInput(at ?? ""), level }[kind]);

/** `value`: `{ kind, delay, at, level }`; `levels` only where they can be used. */
export function WhenField({ value, onChange, levels = [], now = false }) {
  const set = (patch) => onChange({ ...value, ...patch });
  const kinds = [
    ...(now ? [["now", t("when.now")]] : []),
    ["delay", t("when.delay")],
    ["at", t("when.at")],
    ...(levels.length ? [["level", t("when.level")]] : []),
  ];
  const choose = (kind) =>
    set({
      kind,
      at: value.at || toInput(Date.now() + 3_600_000),
      level: value.level || levels[0]?.name,
    });
  return html`<fieldset class="when">
    <legend>${t("when.label")}</legend>
    <div class="row">
      <${Choice} label=${t("when.label")} value=${value.kind} onChange=${choose} options=${kinds} />
      ${value.kind === "delay"
        ? html`<input class="mono delay" aria-label=${t("when.delay.label")} value=${value.delay} onInput=${(event) => set({ delay: event.target.value.trim() })} />
            ${PRESETS.map((preset) => html`<button key=${preset} type="button" class="btn small plain" onClick=${() => set({ delay: preset })}>${preset}</button>`)}`
        : null}
      ${value.kind === "at"
        ? html`<input type="datetime-local" step="1" aria-label=${t("when.at.label")} value=${value.at} onInput=${(event) => set({ at: event.target.value })} />`
        : null}
      ${value.kind === "level"
        ? html`<select aria-label=${t("when.level")} value=${value.level} onChange=${(event) => set({ level: event.target.value })}>
            ${levels.map(({ name, delay }) => html`<option key=${name} value=${name}>${name} (${delay})</option>`)}
          </select>`
        : null}
    </div>
  </fieldset>`;
}

/** Asks for another time, then calls `onTime` with what the API is to be told. */
export const openReschedule = (message, onTime) =>
  openDialog((close) => html`<${Reschedule} message=${message} close=${close} onTime=${onTime} />`);

function Reschedule({ message, close, onTime }) {
  const [when, setWhen] = useState({ kind: "delay", delay: "15m", at: toInput(message.deliver_at_ms) });
  const submit = (event) => {
    event.preventDefault();
    close();
    onTime(whenOf(when));
  };
  return html`<form class="dialog" onSubmit=${submit}>
    <h2 id="dialog-title">${t("act.reschedule")}</h2>
    <p class="mono break">${message.id}</p>
    <${WhenField} value=${when} onChange=${setWhen} />
    <div class="end"><button type="button" class="btn" onClick=${close}>${t("keep")}</button>
      <button class="btn primary" disabled=${!isSet(when)}>${t("act.reschedule")}</button></div>
  </form>`;
}
