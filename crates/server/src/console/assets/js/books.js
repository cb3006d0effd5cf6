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

export function Books({ books }) {
  const whole = Math.max(1, books.accepted);
  return html`<section class="card books" aria-labelledby="books-title">
    <div class="head"><h2 id="books-title">${t("books.title")}</h2>
      <span class="end"><span class=${`badge ${books.balanced ? "good" : "bad"}`}>${books.balanced ? t("books.good") : t("books.bad")}</span></span></div>
    <p class="books-sum"><b class="num" title=${exact(books.accepted)}>${count(books.accepted)}</b> ${t("books.accepted")}</p>
    <div class="stack" aria-hidden="true">
      ${PARTS.filter(([name]) => books[name] > 0).map(
        ([name, tone]) => html`<i key=${name} class=${`fill ${tone}`} style=${{ flexGrow: Math.max(books[name] / whole, 0.006) }}></i>`,
      )}
    </div>
    <ul class="books-parts">
      ${PARTS.map(
        ([name, tone]) => html`<li key=${name}><i class=${`dot ${tone}`}></i>
          <span>${name === "purged" ? t("state.purged") : html`<a href=${name === "dead" ? to("dead") : to("messages", { state: name })}>${t(`state.${name}`)}</a>`}</span>
          <b class="num" title=${exact(books[name])}>${count(books[name])}</b></li>`,
      )}
    </ul>
  </section>`;
}
