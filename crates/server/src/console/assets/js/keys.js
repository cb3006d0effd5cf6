// The keyboard: single keys, unless somebody is writing, and only while they are wanted.
import { useEffect } from "./lib.js";
import { dialogIsOpen } from "./dialog.js";
import { openHelp } from "./help.js";
import { toggle } from "./live.js";
import { prefs } from "./prefs.js";
import { go } from "./router.js";

/** After `g`. */
const PLACES = { o: "", m: "messages", d: "dead", q: "queues", s: "sinks", n: "nodes" };
const AFTER_G = 1_200;

const writing = (target) => target?.closest?.("input, textarea, select, [contenteditable]");

export function useKeys() {
  useEffect(() => {
    let g = 0;
    const onKey = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || dialogIsOpen()) return;
      if (writing(event.target)) {
        if (event.key === "Escape") event.target.blur();
        return;
      }
      if (prefs.get().shortcuts === "off") return;
      if (event.timeStamp - g < AFTER_G && event.key in PLACES) go(...[PLACES[event.key]].filter(Boolean));
      else if (event.key === "g") g = event.timeStamp;
      else if (event.key === "/") document.getElementById("search")?.focus();
      else if (event.key === "?") openHelp();
      else if (event.key === "c") go("send");
      else if (event.key === "p") toggle();
      else return;
      if (event.key !== "g") g = 0;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}
