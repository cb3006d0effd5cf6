// The bar above, and the way to every screen.
import { html, useEffect, useRef, useState } from "./lib.js";
import { count } from "./format.js";
import { openHelp } from "./help.js";
import { t } from "./i18n.js";
import { live, toggle } from "./live.js";
import { LANGUAGES, prefs, setPref, THEMES } from "./prefs.js";
import { go, route, to } from "./router.js";
import { leave, may, seesAll, session, token } from "./session.js";
import { useStore } from "./store.js";

const SCREENS = ["overview", "messages", "dead", "queues", "sinks", "nodes"];
const THEME_SIGNS = { system: "◐", light: "☀", dark: "☾" };

function Search() {
  const [text, setText] = useState("");
  const find = (event) => {
    event.preventDefault();
    if (text.trim()) go("messages", text.trim());
    setText("");
  };
  return html`<form class="search" role="search" onSubmit=${find}>
    <label class="sr-only" for="search">${t("search.label")}</label>
    <input id="search" type="search" autocomplete="off" spellcheck=${false} value=${text} placeholder=${t("search.hint")} maxlength="128"
      onInput=${(event) => setText(event.target.value)} />
    ${text ? null : html`<kbd aria-hidden="true">/</kbd>`}
  </form>`;
}

export function Bar() {
  const { theme, language } = useStore(prefs);
  const { on, stream } = useStore(live);
  const next = (list, value) => list[(list.indexOf(value) + 1) % list.length];
  const other = next(LANGUAGES, language);
  return html`<header class="bar">
    <a class="brand" href=${to()}><img src="icon.svg" alt="" />Duly</a>
    ${may("read") ? html`<${Search} />` : null}
    <div class="bar-end">
      ${may("produce") || may("operate") ? null : html`<span class="badge">${t("role.readonly")}</span>`}
      <button class="btn small live" aria-pressed=${on ? "true" : "false"} onClick=${toggle} title=${t("live.title")}>
        <i class=${`dot ${on ? (stream === "broken" ? "amber" : "green") : "ink-3"}`}></i>${on ? t("live.on") : t("live.paused")}
      </button>
      <button class="btn plain small" onClick=${() => setPref("theme", next(THEMES, theme))} aria-label=${t("theme.label", { theme: t(`theme.${theme}`) })} title=${t("theme.label", { theme: t(`theme.${theme}`) })}>
        <span aria-hidden="true">${THEME_SIGNS[theme]}</span>
      </button>
      <button class="btn plain small" lang=${other === "zh" ? "zh-CN" : "en"} onClick=${() => setPref("language", other)}>
        ${other === "zh" ? "中文" : "English"}
      </button>
      <button class="btn plain small" aria-label=${t("help.open")} title=${t("help.open")} onClick=${openHelp}>?</button>
      ${token() ? html`<button class="btn plain small" onClick=${leave}>${t("leave")}</button>` : null}
    </div>
  </header>`;
}

export function Side() {
  const { parts } = useStore(route);
  const dead = useStore(live, (state) => state.stats?.totals.dead ?? 0);
  const here = parts[0] ?? "overview";
  const shown = SCREENS.filter((name) => may("read") && (seesAll() || name !== "sinks"));
  const list = useRef(null);
  // On a phone the list is wider than the page.
  useEffect(() => list.current.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [here]);
  return html`<nav class="side" aria-label=${t("nav.label")} ref=${list}>
    <ul>
      ${may("produce") ? html`<li><a class="primary-link" href=${to("send")} aria-current=${here === "send" ? "page" : null}>${t("nav.send")}</a></li>` : null}
      ${shown.map(
        (name) => html`<li key=${name}><a href=${name === "overview" ? to() : to(name)} aria-current=${here === name ? "page" : null}>
          ${t(`nav.${name}`)}${name === "dead" && dead ? html`<span class="count num" aria-label=${t("tile.dead", { n: dead })}>${count(dead)}</span>` : null}</a></li>`,
      )}
    </ul>
  </nav>`;
}

export function Foot() {
  const stats = useStore(live, (state) => state.stats);
  const { who } = useStore(session);
  return html`<footer class="foot">
    <span>Duly ${stats?.version ?? ""}</span>
    ${who?.tokens ? html`<span>${t("foot.who", { name: who.name })} · ${who.roles.map((role) => t(`role.${role}`)).join(", ")}</span>` : null}
    <a href="openapi.json">API</a><a href="errors">${t("foot.errors")}</a>${who?.tokens ? null : html`<a href="metrics">${t("foot.metrics")}</a>`}
  </footer>`;
}
