// The small things that every screen is made of.
import { html, useEffect, useRef, useState } from "./lib.js";
import { known, t } from "./i18n.js";
import { relative, time, timeExact } from "./format.js";
import { showToast } from "./toasts.js";

export const Badge = ({ kind, label }) =>
  html`<span class=${`badge ${kind}`}>${label ?? (known(`state.${kind}`) ? t(`state.${kind}`) : kind)}</span>`;

/** A point in time: as the reader's clock shows it, with what it is from now, and exactly in the title. */
export const When = ({ ms, far = false }) =>
  ms == null
    ? html`<span class="quiet">–</span>`
    : html`<time datetime=${timeExact(ms)} title=${timeExact(ms)} class="num">
        ${time(ms)}${far ? html` <span class="quiet">${relative(ms)}</span>` : null}
      </time>`;

export const Empty = ({ children }) => html`<div class="empty">${children}</div>`;

export const Busy = ({ on }) =>
  on ? html`<div class="busy" role="progressbar" aria-label=${t("loading")}></div>` : null;

/** What went wrong, in the server's words where it had some. */
export function errorText(error) {
  if (error?.code === "unreachable") return t("error.unreachable");
  return error?.message || t("error.unknown");
}

export const ErrorNote = ({ error, again }) =>
  html`<div class="note bad" role="alert">
    <p><strong>${t("error.title")}</strong> ${errorText(error)}</p>
    ${again ? html`<span class="end"><button class="btn small" onClick=${again}>${t("again")}</button></span>` : null}
  </div>`;

export function Copy({ text, label }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      showToast(t("copied"));
    } catch {
      showToast(t("copy.failed"), { bad: true });
    }
  };
  return html`<button type="button" class="btn small" onClick=${copy}>${label ?? t("copy")}</button>`;
}

/** One of a few. `options`: `[value, words]`. */
export const Choice = ({ label, value, options, onChange }) =>
  html`<div class="seg" role="group" aria-label=${label}>
    ${options.map(
      ([own, words]) =>
        html`<button type="button" key=${own} aria-pressed=${own === value ? "true" : "false"} onClick=${() => onChange(own)}>
          ${words}
        </button>`,
    )}
  </div>`;

let fields = 0;

/** A labelled input; `children` is a function of the id. */
export function Field({ label, hint, children, wide }) {
  const id = useRef(null);
  id.current ??= `field-${(fields += 1)}`;
  return html`<div class=${`field ${wide ? "wide" : ""}`}>
    <label for=${id.current}>${label}</label>
    ${children(id.current, hint ? `${id.current}-hint` : undefined)}
    ${hint ? html`<span class="hint" id=${`${id.current}-hint`}>${hint}</span>` : null}
  </div>`;
}

/** Asks once, and again when `keys` change. Answers that come too late are dropped. */
export function useAsk(ask, keys) {
  const [state, set] = useState({ value: null, error: null, busy: true });
  const [turn, again] = useState(0);
  useEffect(() => {
    const stop = new AbortController();
    set((old) => ({ ...old, busy: true }));
    ask(stop.signal).then(
      (value) => !stop.signal.aborted && set({ value, error: null, busy: false }),
      // What was there before may belong to another question, or be long gone: beside an error it would pass for the answer.
      (error) => !stop.signal.aborted && set({ value: null, error, busy: false }),
    );
    return () => stop.abort();
  }, [...keys, turn]);
  return { ...state, again: () => again((n) => n + 1), put: (value) => set({ value, error: null, busy: false }) };
}

/** The title of the screen: read out and focused when it is opened. */
export function Title({ words, children }) {
  useEffect(() => {
    document.title = `${words} · Duly`;
  }, [words]);
  return html`<div class="head"><h1>${words}</h1>${children}</div>`;
}
