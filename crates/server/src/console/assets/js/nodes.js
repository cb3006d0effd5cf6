// The nodes on this store, what each serves and owns, and how far its clock is off; the shards, who delivers them and how far behind.
import { html, useEffect } from "./lib.js";
import { api } from "./api.js";
import { span } from "./format.js";
import { t } from "./i18n.js";
import { live } from "./live.js";
import { Badge, Busy, ErrorNote, Title, useAsk } from "./parts.js";
import { useStore } from "./store.js";

const SKEW_WARN_MS = 500;
const LAG_WARN_MS = 5_000;
const TONES = ["accent", "blue", "violet", "amber", "green", "red"];

export function Nodes() {
  const asked = useAsk((signal) => api.nodes(signal), []);
  const stamp = useStore(live, (state) => state.now?.t);
  useEffect(() => {
    if (asked.value && !asked.busy) asked.again();
  }, [stamp]);
  const { nodes = [], shards: parts = [] } = asked.value ?? {};
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
    ${parts.length
      ? html`<section class="card" aria-labelledby="parts-title"><h2 id="parts-title">${t("shards.title")}</h2><div class="table-wrap"><table class="cards"><thead><tr>
          <th>${t("shards.number")}</th><th>${t("shards.owner")}</th><th class="right">${t("shards.lag")}</th></tr></thead>
          <tbody>${parts.map((part) => html`<${Part} key=${part.shard} part=${part} />`)}</tbody></table></div></section>`
      : null}
  </div>`;
}

/** Who delivers what: one name if it is one node for all lanes. */
function owners(part) {
  const lanes = new Map();
  for (const { lane, node } of part.owners) lanes.set(node, [...(lanes.get(node) ?? []), lane]);
  return [...lanes].map(([node, own]) => (lanes.size === 1 ? node : `${node}: ${own.join(", ")}`));
}

function Part({ part }) {
  const late = part.lag_ms ?? 0;
  const names = owners(part);
  return html`<tr>
    <td data-label=${t("shards.number")} class="num">${part.shard}</td>
    <td data-label=${t("shards.owner")}>${names.length ? names.map((name) => html`<div key=${name} class="break">${name}</div>`) : html`<span class="quiet">${t("shards.nobody")}</span>`}</td>
    <td data-label=${t("shards.lag")} class="right">${late >= LAG_WARN_MS ? html`<${Badge} kind="bad" label=${span(late)} />` : late ? span(late) : t("shards.on_time")}</td>
  </tr>`;
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
