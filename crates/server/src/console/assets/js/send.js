// Send one message, and see how a program would.
import { html, useState } from "./lib.js";
import { address, api } from "./api.js";
import { t } from "./i18n.js";
import { live, refresh } from "./live.js";
import { Busy, Choice, Copy, ErrorNote, Field, Title, useAsk } from "./parts.js";
import { Pairs } from "./pairs.js";
import { Raw } from "./raw.js";
import { go } from "./router.js";
import { may, seesAll, token } from "./session.js";
import { curl, rust } from "./snippets.js";
import { useStore } from "./store.js";
import { showToast } from "./toasts.js";
import { isSet, WhenField, whenOf } from "./when.js";

const FRESH = {
  sink: "queue", topic: "", id: "", bodyKind: "json", body: '{"order": 42}', when: { kind: "delay", delay: "15m", at: "", level: "" },
  properties: [], tag: "", key: "", priority: "", attempts: "", lateness: "",
};

/** What the API is told; throws if the JSON is none. */
function messageOf(form) {
  const message = { topic: form.topic };
  if (form.sink !== "queue") message.sink = form.sink;
  if (form.id) message.id = form.id;
  if (form.body !== "" || form.bodyKind === "json") {
    if (form.bodyKind === "json" && form.body.trim()) message.json = new Raw(form.body);
    if (form.bodyKind === "text") message.body = form.body;
    if (form.bodyKind === "base64") message.body_base64 = form.body.replace(/\s/g, "");
  }
  Object.assign(message, whenOf(form.when));
  const properties = Object.fromEntries(form.properties.filter(([name]) => name));
  if (Object.keys(properties).length) message.properties = properties;
  for (const name of ["tag", "key"]) if (form[name]) message[name] = form[name];
  if (form.priority !== "") message.priority = Number(form.priority);
  if (form.lateness) message.max_lateness = form.lateness;
  if (form.attempts) message.retry = { attempts: Number(form.attempts) };
  return message;
}

export function Send() {
  const [form, setForm] = useState(FRESH);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const levels = useAsk((signal) => (may("read") ? api.levels(signal) : Promise.resolve({ levels: [] })), []).value?.levels ?? [];
  const set = (patch) => setForm((old) => ({ ...old, ...patch }));
  let message = null;
  try {
    message = messageOf(form);
  } catch {
    // The form says so beside the body.
  }
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const accepted = await api.send(message);
      showToast(t(accepted.duplicate ? "send.duplicate" : "send.done", { id: accepted.id }));
      refresh();
      if (may("read")) go("messages", accepted.id);
    } catch (fault) {
      setError(fault);
    }
    setBusy(false);
  };
  return html`<div class="screen">
    <${Title} words=${t("send.title")} />
    <div class="grid-2 send">
      <form class="card column" onSubmit=${submit}>
        <${Where} form=${form} set=${set} />
        <${WhenField} value=${form.when} onChange=${(when) => set({ when })} levels=${levels} now />
        <${What} form=${form} set=${set} bad=${message === null} />
        <${More} form=${form} set=${set} />
        ${error ? html`<${ErrorNote} error=${error} />` : null}
        <${Busy} on=${busy} />
        <div class="row"><button class="btn primary" disabled=${busy || !message || !form.topic || !isSet(form.when)}>${t("send.do")}</button>
          <button type="button" class="btn plain" onClick=${() => setForm(FRESH)}>${t("send.clear")}</button></div>
      </form>
      <${Same} message=${message} />
    </div>
  </div>`;
}

function Where({ form, set }) {
  const { sinks, queues } = useStore(live);
  const names = ["queue", ...(sinks ?? []).filter((sink) => sink.state !== "orphan").map((sink) => sink.name)];
  return html`<div class="filter-row">
    ${seesAll()
      ? html`<${Field} label=${t("sink")}>${(id) => html`<select id=${id} value=${form.sink} onChange=${(event) => set({ sink: event.target.value })}>
          ${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select>`}<//>`
      : null}
    <${Field} label=${t("topic")}>${(id) => html`<input id=${id} required maxlength="255" list="send-topics" spellcheck=${false} value=${form.topic} onInput=${(event) => set({ topic: event.target.value })} />
      <datalist id="send-topics">${(queues ?? []).slice(0, 200).map(({ topic }) => html`<option key=${topic} value=${topic}></option>`)}</datalist>`}<//>
    <${Field} label=${t("send.id")} hint=${t("send.id.hint")}>
      ${(id, hint) => html`<input id=${id} class="mono" maxlength="128" pattern="[A-Za-z0-9._:\\-]+" spellcheck=${false} aria-describedby=${hint} value=${form.id} onInput=${(event) => set({ id: event.target.value })} />`}<//>
  </div>`;
}

function What({ form, set, bad }) {
  const kinds = [["json", "JSON"], ["text", t("body.text")], ["base64", "Base64"]];
  return html`<div class="field">
    <label for="send-body">${t("body.title")}</label>
    <div class="row"><${Choice} label=${t("body.as")} value=${form.bodyKind} options=${kinds} onChange=${(bodyKind) => set({ bodyKind })} />
      ${bad ? html`<span class="wrong" role="alert">${t("send.bad_json")}</span>` : null}</div>
    <textarea id="send-body" rows="6" spellcheck=${false} aria-invalid=${bad ? "true" : null} value=${form.body} onInput=${(event) => set({ body: event.target.value })}></textarea>
  </div>`;
}

function More({ form, set }) {
  const input = (name, label, more = {}) =>
    html`<${Field} label=${label}>${(id) => html`<input id=${id} value=${form[name]} ...${more} onInput=${(event) => set({ [name]: event.target.value })} />`}<//>`;
  return html`<details class="more"><summary>${t("send.more")}</summary>
    <div class="column">
      <${Pairs} label=${t("properties")} pairs=${form.properties} onChange=${(properties) => set({ properties })} />
      <div class="filter-row">
        ${input("tag", t("tag"))}${input("key", t("key"))}
        ${input("priority", t("priority"), { type: "number", min: 0, max: 9, placeholder: "4" })}
        ${input("attempts", t("send.attempts"), { type: "number", min: 1, placeholder: "16" })}
        ${input("lateness", t("max_lateness"), { placeholder: "10m" })}
      </div>
    </div></details>`;
}

function Same({ message }) {
  const [as, setAs] = useState("curl");
  const code = message === null ? "" : as === "curl" ? curl(message, address("v1/messages").href, Boolean(token())) : rust(message);
  return html`<section class="card column" aria-labelledby="same-title">
    <div class="head"><h2 id="same-title">${t("send.same")}</h2>
      <span class="end"><${Choice} label=${t("send.same")} value=${as} onChange=${setAs} options=${[["curl", "curl"], ["rust", "Rust"]]} /><${Copy} text=${code} /></span></div>
    <pre class="code" tabindex="0" role="group" aria-labelledby="same-title">${code}</pre>
    ${message?.id ? html`<p class="quiet">${t("send.same.words")}</p>` : null}
  </section>`;
}
