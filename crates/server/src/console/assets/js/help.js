// What the keys do, and what the words mean.
import { html } from "./lib.js";
import { openDialog } from "./dialog.js";
import { t } from "./i18n.js";
import { prefs, setPref } from "./prefs.js";
import { useStore } from "./store.js";

const KEYS = [
  [["/"], "help.search"],
  [["?"], "help.help"],
  [["c"], "help.send"],
  [["p"], "help.live"],
  [["g", "o"], "nav.overview"],
  [["g", "m"], "nav.messages"],
  [["g", "d"], "nav.dead"],
  [["g", "q"], "nav.queues"],
  [["g", "s"], "nav.sinks"],
  [["g", "n"], "nav.nodes"],
  [["Esc"], "help.escape"],
];
const STATES = ["pending", "in_flight", "delivered", "dead", "cancelled"];

export const openHelp = () => openDialog((close) => html`<${Help} close=${close} />`);

function Help({ close }) {
  const { shortcuts } = useStore(prefs);
  return html`<div class="dialog">
    <h2 id="dialog-title">${t("help.title")}</h2>
    <dl class="keys">
      ${KEYS.map(([keys, words]) => html`<div key=${words}><dt>${keys.map((key) => html`<kbd key=${key}>${key}</kbd> `)}</dt><dd>${t(words)}</dd></div>`)}
    </dl>
    <label class="row"><input type="checkbox" checked=${shortcuts === "on"} onChange=${(event) => setPref("shortcuts", event.target.checked ? "on" : "off")} />${t("help.shortcuts")}</label>
    <h3>${t("help.states")}</h3>
    <dl class="facts">${STATES.map((state) => html`<dt key=${state}>${t(`state.${state}`)}</dt><dd>${t(`help.state.${state}`)}</dd>`)}</dl>
    <div class="end"><button class="btn" onClick=${close} autofocus>${t("close")}</button></div>
  </div>`;
}
