// A value that can be watched.
import { useEffect, useState } from "./lib.js";

export function createStore(initial) {
  let state = initial;
  const watchers = new Set();
  return {
    get: () => state,
    set(patch) {
      state = { ...state, ...(typeof patch === "function" ? patch(state) : patch) };
      for (const watcher of [...watchers]) watcher(state);
    },
    watch(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
  };
}

const whole = (state) => state;

/** The chosen part of a store; the component is drawn again when that part changes. */
export function useStore(store, choose = whole) {
  const [, redraw] = useState(0);
  const chosen = choose(store.get());
  useEffect(() => {
    let last = chosen;
    const update = (state) => {
      const next = choose(state);
      if (!Object.is(next, last)) {
        last = next;
        redraw((n) => n + 1);
      }
    };
    // It may have changed between drawing and now.
    update(store.get());
    return store.watch(update);
  }, [store]);
  return chosen;
}
