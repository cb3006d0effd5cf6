// Short words about what was just done, with a way back where there is one.
import { html } from "./lib.js";
import { t } from "./i18n.js";
import { createStore, useStore } from "./store.js";

const SHOWN = 5_000;
const SHOWN_WITH_UNDO = 15_000;
const toasts = createStore({ list: [] });
let number = 0;

const drop = (key) => toasts.set(({ list }) => ({ list: list.filter((toast) => toast.key !== key) }));

/** `undo` is called if the reader wants it undone. */
export function showToast(words, { bad = false, undo } = {}) {
  const key = (number += 1);
  toasts.set(({ list }) => ({ list: [...list.slice(-2), { key, words, bad, undo }] }));
  setTimeout(() => drop(key), undo ? SHOWN_WITH_UNDO : SHOWN);
}

export function Toasts() {
  const { list } = useStore(toasts);
  const undo = (toast) => {
    drop(toast.key);
    toast.undo();
  };
  return html`<div class="toasts" role="status" aria-live="polite">
    ${list.map(
      (toast) => html`<div class=${`toast ${toast.bad ? "bad" : ""}`} key=${toast.key}>
        <span>${toast.words}</span>
        ${toast.undo ? html`<button onClick=${() => undo(toast)}>${t("undo")}</button>` : null}
        <button class="close" aria-label=${t("close")} onClick=${() => drop(toast.key)}>✕</button>
      </div>`,
    )}
  </div>`;
}
