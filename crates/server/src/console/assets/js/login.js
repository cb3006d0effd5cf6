// Asks for the token.
import { html, useState } from "./lib.js";
import { t } from "./i18n.js";
import { LANGUAGES, prefs, setPref } from "./prefs.js";
import { Field } from "./parts.js";
import { enter } from "./session.js";

export function Login() {
  const [text, setText] = useState("");
  const [wrong, setWrong] = useState(false);
  const [busy, setBusy] = useState(false);
  const other = LANGUAGES.find((language) => language !== prefs.get().language);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setWrong(!(await enter(text)));
    setBusy(false);
  };
  return html`<main class="login">
    <form class="card" onSubmit=${submit}>
      <div class="head"><img src="icon.svg" alt="" width="40" height="40" /><h1>Duly</h1></div>
      <p class="quiet">${t("login.words")}</p>
      <${Field} label=${t("login.token")} hint=${t("login.hint")}>
        ${(id, hint) => html`<input id=${id} type="password" autocomplete="off" required aria-describedby=${hint} aria-invalid=${wrong ? "true" : null}
          value=${text} onInput=${(event) => setText(event.target.value)} />`}
      <//>
      ${wrong ? html`<p class="note bad" role="alert">${t("login.wrong")}</p>` : null}
      <div class="row">
        <button class="btn primary" disabled=${busy || !text.trim()}>${t("login.enter")}</button>
        <button type="button" class="btn plain" onClick=${() => setPref("language", other)}>${other === "zh" ? "中文" : "English"}</button>
      </div>
    </form>
  </main>`;
}
