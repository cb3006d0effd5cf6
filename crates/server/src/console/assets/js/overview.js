// The whole at a glance.
import { html } from "./lib.js";
import { Totals } from "./totals.js";
import { Feed } from "./feed.js";
import { count, exact, rate, span } from "./format.js";
import { Health, overdueWords } from "./health.js";
import { Histogram } from "./histogram.js";
import { t } from "./i18n.js";
import { live } from "./live.js";
import { Title } from "./parts.js";
import { Plot } from "./plot.js";
import { to } from "./router.js";
import { useStore } from "./store.js";

const ms = (value) => span(value);

const Tile = ({ label, value, title, note, tone, href }) => {
  const inner = html`<span class="tile-label">${label}</span>
    <span class="tile-value num" title=${title}>${value}</span>
    <span class="tile-note">${note ?? ""}</span>`;
  return href
    ? html`<li><a class=${`tile ${tone ?? ""}`} href=${href}>${inner}</a></li>`
    : html`<li><div class=${`tile ${tone ?? ""}`}>${inner}</div></li>`;
};

function Tiles({ stats, now }) {
  const { totals, lateness } = stats;
  return html`<ul class="tiles" aria-label=${t("tile.group")}>
    <${Tile} label=${t("tile.pending")} value=${count(totals.pending)} title=${exact(totals.pending)} note=${t("tile.in_flight", { n: totals.in_flight })} href=${to("messages", { state: "pending" })} />
    <${Tile} label=${t("tile.due")} value=${count(now?.due)} note=${t("tile.due.note")} href=${to("messages", { state: "pending", to: "now" })} />
    <${Tile} label=${t("tile.overdue")} value=${now?.oldest ? span(now.oldest, 1) : "–"} note=${overdueWords(now?.oldest)} tone=${now?.oldest > 10_000 ? "warn" : ""} href=${to("queues")} />
    <${Tile} label=${t("tile.delivered")} value=${rate(now?.delivered ?? stats.delivered_per_second)} note=${t("tile.per_second")} />
    <${Tile} label=${t("tile.failed")} value=${rate(now?.failed ?? 0)} note=${t("tile.dead", { n: totals.dead })} tone=${now?.failed > 0 ? "warn" : ""} href=${to("dead")} />
    <${Tile} label=${t("tile.lateness")} value=${lateness.count ? span(lateness.p99_ms) : "–"} note=${lateness.count ? t("tile.lateness.note", { p50: span(lateness.p50_ms), max: span(lateness.max_ms) }) : t("tile.none")} />
  </ul>`;
}

function Plots({ now }) {
  const turn = now?.t;
  return html`<div class="grid-3">
    <${Plot} title=${t("plot.rates")} show=${rate} turn=${turn} now=${now} lines=${[
      { name: "delivered", label: t("plot.delivered"), tone: "accent", fill: true },
      { name: "accepted", label: t("plot.accepted"), tone: "blue" },
      { name: "failed", label: t("plot.failed"), tone: "red" },
    ]} />
    <${Plot} title=${t("plot.lateness")} show=${ms} log turn=${turn} now=${now} lines=${[
      { name: "p50", label: "p50", tone: "accent" },
      { name: "p99", label: "p99", tone: "violet" },
      { name: "max", label: t("plot.max"), tone: "amber" },
    ]} />
    <${Plot} title=${t("plot.backlog")} show=${count} whole turn=${turn} now=${now} lines=${[
      { name: "pending", label: t("plot.pending"), tone: "blue", fill: true },
      { name: "due", label: t("plot.due"), tone: "amber" },
    ]} />
  </div>`;
}

export function Overview() {
  const { stats, now, on } = useStore(live);
  return html`<div class="screen">
    <${Title} words=${t("nav.overview")}>
      ${on ? null : html`<span class="badge paused">${t("live.paused")}</span>`}
    <//>
    <${Health} />
    ${stats ? html`<${Tiles} stats=${stats} now=${now} />` : null}
    <${Histogram} />
    <${Plots} now=${now} />
    <div class="grid-2">${stats ? html`<${Totals} totals=${stats.totals} />` : null}<${Feed} /></div>
  </div>`;
}
