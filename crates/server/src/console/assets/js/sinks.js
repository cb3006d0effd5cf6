// Where messages go: how each target is, and what waits for it.
import { html } from "./lib.js";
import { pause, probe, resume } from "./actions.js";
import { api } from "./api.js";
import { count, rate, span } from "./format.js";
import { t } from "./i18n.js";
import { live } from "./live.js";
import { Badge, Busy, Empty, ErrorNote, Title, useAsk } from "./parts.js";
import { to } from "./router.js";
import { may } from "./session.js";
import { useStore } from "./store.js";

export function Sinks() {
  const followed = useStore(live, (state) => state.sinks);
  const asked = useAsk((signal) => api.sinks(signal), []);
  const sinks = followed ?? asked.value;
  return html`<div class="screen">
    <${Title} words=${t("nav.sinks")} />
    ${asked.error ? html`<${ErrorNote} error=${asked.error} again=${asked.again} />` : null}
    <${Busy} on=${asked.busy && !sinks} />
    ${sinks && !sinks.length ? html`<section class="card"><${Empty}>${t("sinks.empty")}<//></section>` : null}
    <div class="sinks">${(sinks ?? []).map((sink) => html`<${One} key=${sink.name} sink=${sink} />`)}</div>
  </div>`;
}

const Fact = ({ label, value, href }) =>
  html`<div><dt>${label}</dt><dd class="num">${href ? html`<a href=${href}>${value}</a>` : value}</dd></div>`;

function One({ sink }) {
  const { name, state, paused, kind } = sink;
  const lane = { sink: name };
  return html`<section class="card" aria-labelledby=${`sink-${name}`}>
    <div class="head"><h2 id=${`sink-${name}`}>${name}</h2><span class="quiet">${kind}</span><span class="end"><${Badge} kind=${state} /></span></div>
    ${sink.last_error && state !== "reachable" ? html`<p class="life-detail">${sink.last_error}</p>` : null}
    ${state === "orphan" ? html`<p class="quiet">${t("sinks.orphan")}</p>` : null}
    <dl class="figures">
      <${Fact} label=${t("state.pending")} value=${count(sink.pending)} href=${to("messages", { sink: name })} />
      <${Fact} label=${t("ready")} value=${count(sink.ready)} />
      <${Fact} label=${t("state.in_flight")} value=${count(sink.in_flight)} />
      <${Fact} label=${t("state.dead")} value=${count(sink.dead)} href=${sink.dead ? to("dead", { sink: name }) : null} />
      <${Fact} label=${t("sinks.rate")} value=${rate(sink.delivered_per_second)} />
      <${Fact} label=${t("overdue")} value=${sink.oldest_overdue_ms == null ? "–" : span(sink.oldest_overdue_ms)} />
    </dl>
    ${sink.rate_limit ? html`<p class="quiet">${t("sinks.limit", { n: sink.rate_limit })}</p>` : null}
    ${may("operate") && state !== "orphan"
      ? html`<div class="row">
          <button class="btn small" aria-label=${t(paused ? "queues.resume" : "queues.pause", { topic: name })} onClick=${() => (paused ? resume(lane) : pause(lane))}>${t(paused ? "act.resume" : "act.pause")}</button>
          <button class="btn small" aria-label=${t("sinks.probe", { name })} onClick=${() => probe(name)}>${t("act.probe")}</button>
        </div>`
      : null}
  </section>`;
}
