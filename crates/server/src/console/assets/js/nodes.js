// The nodes on this store, what each serves and owns, and how far its clock is off.
import { html, useEffect } from "./lib.js";
import { api } from "./api.js";
import { t } from "./i18n.js";
import { live } from "./live.js";
import { Badge, Busy, ErrorNote, Title, useAsk } from "./parts.js";
import { useStore } from "./store.js";

const SKEW_WARN_MS = 500;
const TONES = ["accent", "blue", "violet", "amber", "green", "red"];

export function Nodes() {
  const asked = useAsk((signal) => api.nodes(signal), []);
  const stamp = useStore(live, (state) => state.now?.t);
  useEffect(() => {
    if (asked.value && !asked.busy) asked.again();
  }, [stamp]);
  const nodes = asked.value ?? [];
  const shards = nodes.reduce((sum, node) => sum + node.shards, 0);
  return html`<div class="screen">
    <${Title} words=${t("nav.nodes")} />
    ${asked.error ? html`<${ErrorNote} error=${asked.error} again=${asked.again} />` : null}
    <${Busy} on=${asked.busy && !asked.value} />
    ${shards
      ? html`<section class="card" aria-labelledby="shards-title"><h2 id="shards-title">${t("nodes.shards", { n: shards })}</h2>
          <div class="stack tall" aria-hidden="true">${nodes.map((node, place) => (node.shards ? html`<i key=${node.name} class=${`fill ${TONES[place % TONES.length]}`} style=${{ flexGrow: node.shards }}></i>` : null))}</div>
          <ul class="legend">${nodes.map((node, place) => html`<li key=${node.name}><i class=${`dot ${TONES[place % TONES.length]}`}></i>${node.name} <b class="num">${node.shards}</b></li>`)}</ul>
        </section>`
      : null}
    ${nodes.length
      ? html`<section class="card" aria-label=${t("nav.nodes")}><div class="table-wrap"><table class="cards"><thead><tr>
          <th>${t("nodes.name")}</th><th>${t("nodes.does")}</th><th>${t("nodes.lanes")}</th><th class="right">${t("nodes.owned")}</th><th class="right">${t("nodes.skew")}</th><th>${t("nodes.version")}</th></tr></thead>
          <tbody>${nodes.map((node) => html`<${Row} key=${node.name} node=${node} />`)}</tbody></table></div></section>`
      : null}
  </div>`;
}

function Row({ node }) {
  const off = Math.abs(node.clock_skew_ms) >= SKEW_WARN_MS;
  return html`<tr>
    <td data-label=${t("nodes.name")}><span class="row"><b class="break">${node.name}</b>${node.this ? html`<span class="quiet">${t("nodes.this")}</span>` : null}</span></td>
    <td data-label=${t("nodes.does")}><${Badge} kind=${node.delivers ? "good" : "pending"} label=${t(node.delivers ? "nodes.delivers" : "nodes.accepts")} /></td>
    <td data-label=${t("nodes.lanes")}><span class="break">${node.lanes.join(", ") || "–"}</span></td>
    <td data-label=${t("nodes.owned")} class="right">${node.shards}</td>
    <td data-label=${t("nodes.skew")} class="right">${off ? html`<${Badge} kind="bad" label=${`${node.clock_skew_ms.toFixed(1)} ms`} />` : `${node.clock_skew_ms.toFixed(1)} ms`}</td>
    <td data-label=${t("nodes.version")}>${node.version}</td>
  </tr>`;
}
