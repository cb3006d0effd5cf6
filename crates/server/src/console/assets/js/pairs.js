// Names and values, as many as wanted.
import { html } from "./lib.js";
import { t } from "./i18n.js";

export function Pairs({ label, pairs, onChange }) {
  const set = (place, part, text) =>
    onChange(pairs.map((pair, at) => (at === place ? (part ? [pair[0], text] : [text, pair[1]]) : pair)));
  return html`<fieldset class="pairs"><legend>${label}</legend>
    ${pairs.map(
      ([name, value], place) => html`<div class="row" key=${place}>
        <input class="mono" aria-label=${t("pairs.name", { n: place + 1 })} placeholder=${t("pairs.name.short")} value=${name} onInput=${(event) => set(place, 0, event.target.value)} />
        <input class="mono" aria-label=${t("pairs.value", { n: place + 1 })} placeholder=${t("pairs.value.short")} value=${value} onInput=${(event) => set(place, 1, event.target.value)} />
        <button type="button" class="btn small plain" aria-label=${t("pairs.remove", { n: place + 1 })} onClick=${() => onChange(pairs.filter((_, at) => at !== place))}>✕</button>
      </div>`,
    )}
    <button type="button" class="btn small" onClick=${() => onChange([...pairs, ["", ""]])}>${t("pairs.add")}</button>
  </fieldset>`;
}
