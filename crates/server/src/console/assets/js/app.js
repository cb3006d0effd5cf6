// The frame, and which screen is in it.
import { html, useEffect, useErrorBoundary, useRef } from "./lib.js";
import { Dead } from "./dead.js";
import { Dialogs } from "./dialog.js";
import { Find } from "./find.js";
import { t } from "./i18n.js";
import { useKeys } from "./keys.js";
import { Login } from "./login.js";
import { One } from "./message.js";
import { Bar, Foot, Side } from "./nav.js";
import { Nodes } from "./nodes.js";
import { Overview } from "./overview.js";
import { ErrorNote, Empty } from "./parts.js";
import { prefs } from "./prefs.js";
import { Queues } from "./queues.js";
import { go, route, to } from "./router.js";
import { Send } from "./send.js";
import { greet, may, session } from "./session.js";
import { Sinks } from "./sinks.js";
import { useStore } from "./store.js";
import { Toasts } from "./toasts.js";

const SCREENS = { send: Send, dead: Dead, queues: Queues, sinks: Sinks, nodes: Nodes };

/** Who may only send has one screen. */
function Elsewhere() {
  useEffect(() => go("send"), []);
  return null;
}

function Screen() {
  const { parts, query } = useStore(route);
  const [error, reset] = useErrorBoundary();
  const [first, second] = parts;
  useEffect(() => reset(), [first, second]);
  if (error) return html`<${ErrorNote} error=${error} again=${reset} />`;
  if (!may("read") && first !== "send") {
    return may("produce") ? html`<${Elsewhere} />` : html`<${Empty}>${t("role.none")}<//>`;
  }
  if (!first) return html`<${Overview} />`;
  if (first === "messages") {
    return second ? html`<${One} key=${second} id=${second} />` : html`<${Find} query=${query} />`;
  }
  const Chosen = Object.hasOwn(SCREENS, first) ? SCREENS[first] : null;
  return Chosen ? html`<${Chosen} query=${query} />` : html`<${Empty}>${t("nowhere")} <a href=${to()}>${t("nav.overview")}</a><//>`;
}

export function App() {
  useStore(prefs);
  useKeys();
  const { known, error } = useStore(session);
  const { parts } = useStore(route);
  const main = useRef(null);
  const first = useRef(true);
  useEffect(() => {
    greet();
  }, []);
  useEffect(() => {
    // Who hears the page is told that the screen has changed; not at the very first.
    if (!first.current) main.current?.focus({ preventScroll: true });
    first.current = false;
    scrollTo(0, 0);
  }, [parts.join("/")]);
  if (known === null) return error ? html`<main><${ErrorNote} error=${{ code: error }} again=${greet} /></main>` : null;
  if (!known) return html`<${Login} /><${Toasts} />`;
  return html`<div class="frame">
      <a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), main.current.focus())}>${t("skip")}</a>
      <${Bar} /><${Side} />
      <main id="main" tabindex="-1" ref=${main}><${Screen} /><${Foot} /></main>
    </div>
    <${Dialogs} /><${Toasts} />`;
}
