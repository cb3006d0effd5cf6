// One dialog at a time, in the browser's own element: it keeps the focus in and gives it back.
import { html, useEffect, useRef } from "./lib.js";
import { createStore, useStore } from "./store.js";

const open = createStore({ make: null });

/** Opens a dialog; `make(close)` draws what is in it. */
export const openDialog = (make) => open.set({ make });
const closeDialog = () => open.set({ make: null });
export const dialogIsOpen = () => open.get().make !== null;

export function Dialogs() {
  const { make } = useStore(open);
  return make ? html`<${Dialog} make=${make} />` : null;
}

function Dialog({ make }) {
  const ref = useRef(null);
  useEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement;
    dialog.showModal();
    return () => {
      dialog.close();
      before?.focus?.();
    };
  }, []);
  const outside = (event) => event.target === ref.current && closeDialog();
  return html`<dialog ref=${ref} aria-labelledby="dialog-title" onClose=${closeDialog} onClick=${outside}>
    ${make(closeDialog)}
  </dialog>`;
}
