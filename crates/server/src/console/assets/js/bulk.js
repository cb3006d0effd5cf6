// The same for many: counted first, confirmed by typing, then done.
import { html, useEffect, useState } from "./lib.js";
import { api } from "./api.js";
import { openDialog } from "./dialog.js";
import { exact, time } from "./format.js";
import { t } from "./i18n.js";
import { refresh } from "./live.js";
import { Busy, ErrorNote, Field } from "./parts.js";
import { WhenField, whenOf } from "./when.js";

/** The server takes so many ids in one call, unless it is told otherwise. */
const IDS_MAX = 10_000;

/**
 * `what`: cancel, reschedule, fire, replay or purge. `selection`: `{ ids }` or `{ filter }`.
 * `after` is called when it is done.
 */
export const openBulk = (what, selection, after) =>
  openDialog((close) => html`<${Bulk} what=${what} selection=${selection} close=${close} after=${after} />`);

const TOTALS = ["matched", "done", "too_late", "already", "unknown", "maybe_delivered"];

async function perform(what, { ids, filter }, more) {
  if (!ids) return api.many(what, { filter, ...more });
  const sum = Object.fromEntries(TOTALS.map((name) => [name, 0]));
  for (let at = 0; at < ids.length; at += IDS_MAX) {
    const answer = await api.many(what, { ids: ids.slice(at, at + IDS_MAX), ...more });
    for (const name of TOTALS) sum[name] += answer[name];
  }
  return sum;
}

function Bulk({ what, selection, close, after }) {
  const [counted, setCounted] = useState(null);
  const [result, setResult] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(true);
  const [typed, setTyped] = useState("");
  const [when, setWhen] = useState({ kind: "delay", delay: "1h", at: "" });
  const moves = what === "reschedule";

  const run = async (work, then) => {
    setBusy(true);
    setError(null);
    try {
      then(await work());
    } catch (fault) {
      setError(fault);
    }
    setBusy(false);
  };
  // The time changes nothing about the count, but the server wants one.
  const count = () => run(() => perform(what, selection, { dry_run: true, ...(moves ? { delay: "1h" } : {}) }), setCounted);
  useEffect(() => void count(), []);

  const n = counted ? (selection.ids ? counted.matched - counted.too_late - counted.already : counted.matched) : 0;
  const wanted = `${what} ${n}`;
  // What was counted is what is done: nothing that came since, and no more of it.
  const bound = selection.filter && counted ? { as_of: counted.as_of, matched: counted.matched } : {};
  const submit = (event) => {
    event.preventDefault();
    if (typed.trim() !== wanted) return;
    run(
      () => perform(what, selection, { ...bound, ...(moves ? whenOf(when) : {}) }),
      (answer) => {
        setResult(answer);
        refresh();
        after?.();
      },
    );
  };
  return html`<form class="dialog" onSubmit=${submit}>
    <h2 id="dialog-title">${t(`bulk.${what}`)}</h2>
    <${Chosen} selection=${selection} />
    <div aria-live="polite">
      ${busy ? html`<p class="quiet">${counted ? t("bulk.working") : t("bulk.counting")}</p>` : null}
      ${counted && !result ? html`<p class="bulk-count">${n ? t("bulk.count", { n }) : t("bulk.none")}</p>` : null}
      ${result ? html`<${Result} result=${result} what=${what} />` : null}
    </div>
    <${Busy} on=${busy} />
    ${error ? html`<${ErrorNote} error=${error} again=${counted ? null : count} />` : null}
    ${counted && n > 0 && !result
      ? html`${moves ? html`<${WhenField} value=${when} onChange=${setWhen} />` : null}
          <p class="quiet">${t(`bulk.${what}.undo`)}</p>
          <${Field} label=${t("bulk.type", { words: wanted })}>
            ${(id) => html`<input id=${id} class="mono" autocomplete="off" spellcheck=${false} value=${typed} onInput=${(event) => setTyped(event.target.value)} />`}
          <//>`
      : null}
    <div class="end">
      <button type="button" class="btn" onClick=${close}>${result ? t("close") : t("keep")}</button>
      ${counted && n > 0 && !result
        ? html`<button class=${`btn ${["cancel", "purge"].includes(what) ? "danger solid" : "primary"}`} disabled=${busy || typed.trim() !== wanted}>
            ${t(`bulk.${what}.do`, { n })}
          </button>`
        : null}
    </div>
  </form>`;
}

/** Says in words what is meant. */
function Chosen({ selection: { ids, filter } }) {
  if (ids) return html`<p>${t("bulk.ids", { n: ids.length })}</p>`;
  const parts = [];
  if (filter.sink) parts.push([t("sink"), filter.sink]);
  if (filter.topic) parts.push([t("topic"), filter.topic]);
  if (filter.due_from) parts.push([t("from"), time(filter.due_from)]);
  if (filter.due_to) parts.push([t("to"), time(filter.due_to)]);
  if (!parts.length) return html`<p class="note warn">${t("bulk.all")}</p>`;
  return html`<dl class="facts">${parts.map(([name, value]) => html`<dt key=${name}>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

const Result = ({ result, what }) =>
  html`<p class="note good"><strong>${t(`bulk.${what}.done`, { n: result.done })}</strong></p>
    ${result.already ? html`<p>${t("bulk.already", { n: exact(result.already) })}</p>` : null}
    ${result.too_late ? html`<p>${t("bulk.too_late", { n: exact(result.too_late) })}</p>` : null}
    ${result.unknown ? html`<p>${t("bulk.unknown", { n: exact(result.unknown) })}</p>` : null}
    ${result.maybe_delivered ? html`<p>${t("bulk.maybe", { n: exact(result.maybe_delivered) })}</p>` : null}`;
