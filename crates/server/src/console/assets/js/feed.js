// What happens, while it happens.
import { html } from "./lib.js";
import { clock, span } from "./format.js";
import { alertDetail } from "./health.js";
import { t } from "./i18n.js";
import { live } from "./live.js";
import { to } from "./router.js";
import { useStore } from "./store.js";

const SHOWN = 12;
const TONES = { accepted: "blue", delivered: "accent", failed: "amber", dead: "red", cancelled: "ink-3", sink_unreachable: "red", destination_unreachable: "red", alert: "red", missed: "amber" };

/** What is worth saying beside the kind. */
function words(event) {
  switch (event.kind) {
    case "delivered":
      return t("feed.late", { span: span(event.lateness_ms) });
    case "failed":
      return `${event.outcome}: ${event.detail}`;
    case "dead":
      return t(`reason.${event.reason}`);
    case "sink_unreachable":
      return event.detail;
    case "destination_unreachable":
      return `${event.destination}: ${event.detail}`;
    case "destination_recovered":
      return event.destination;
    case "alert":
      return alertDetail(event.alert);
    case "missed":
      return t("feed.missed", { n: event.count });
    case "leases_lost":
      return String(event.count);
    case "clock_jumped":
      return span(Math.abs(event.by_us) / 1_000);
    default:
      return event.what ?? "";
  }
}

export function Feed() {
  const { feed, stream, on } = useStore(live);
  return html`<section class="card feed" aria-labelledby="feed-title">
    <div class="head"><h2 id="feed-title">${t("feed.title")}</h2>
      <span class="end"><span class=${`badge ${stream === "on" ? "good" : "paused"}`}>${on ? t(`stream.${stream}`) : t("live.paused")}</span></span></div>
    ${feed.length === 0 ? html`<p class="quiet">${t("feed.empty")}</p>` : null}
    <ol>
      ${feed.slice(0, SHOWN).map(
        (event) => html`<li key=${event.key}>
          <time class="num quiet">${clock(event.at)}</time>
          <i class=${`dot ${TONES[event.kind] ?? "ink-3"}`}></i>
          <span class="feed-kind">${t(`event.${event.kind}`)}</span>
          <span class="feed-what">${event.id ? html`<a class="mono" href=${to("messages", event.id)}>${event.id}</a>` : null}
            <span class="quiet"> ${event.lane ?? ""} ${words(event)}</span></span>
        </li>`,
      )}
    </ol>
  </section>`;
}
