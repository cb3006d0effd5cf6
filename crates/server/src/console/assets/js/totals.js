// accepted = pending + in flight + delivered + cancelled + dead + purged, always.
import { html } from "./lib.js";
import { count, exact } from "./format.js";
import { t } from "./i18n.js";
import { to } from "./router.js";

const PARTS = [
  ["pending", "blue"],
  ["in_flight", "amber"],
  ["delivered", "accent"],
  ["cancelled", "ink-3"],
  ["dead", "red"],
  ["purged", "violet"],
];

export function Totals({ totals }) {
  const whole = Math.max(1, totals.accepted);
  return html`<section class="card totals" aria-labelledby="totals-title">
    <div class="head"><h2 id="totals-title">${t("totals.title")}</h2>
      <span class="end"><span class=${`badge ${totals.balanced ? "good" : "bad"}`}>${totals.balanced ? t("totals.good") : t("totals.bad")}</span></span></div>
    <p class="totals-sum"><b class="num" title=${exact(totals.accepted)}>${count(totals.accepted)}</b> ${t("totals.accepted")}</p>
    <div class="stack" aria-hidden="true">
      ${PARTS.filter(([name]) => totals[name] > 0).map(
        ([name, tone]) => html`<i key=${name} class=${`fill ${tone}`} style=${{ flexGrow: Math.max(totals[name] / whole, 0.006) }}></i>`,
      )}
    </div>
    <ul class="totals-parts">
      ${PARTS.map(
        ([name, tone]) => html`<li key=${name}><i class=${`dot ${tone}`}></i>
          <span>${name === "purged" ? t("state.purged") : html`<a href=${name === "dead" ? to("dead") : to("messages", { state: name })}>${t(`state.${name}`)}</a>`}</span>
          <b class="num" title=${exact(totals[name])}>${count(totals[name])}</b></li>`,
      )}
    </ul>
  </section>`;
}
