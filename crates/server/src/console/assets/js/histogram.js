// What comes due: bars that can be zoomed, and clicked into.
import { html, useEffect, useMemo, useRef, useState } from "./lib.js";
import { api } from "./api.js";
import { clock, clockShort, dayShort, exact, time } from "./format.js";
import { t } from "./i18n.js";
import { live } from "./live.js";
import { Busy, Choice, ErrorNote } from "./parts.js";
import { go, to } from "./router.js";
import { useStore } from "./store.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const SPANS = { minute: [MINUTE, 60], hour: [HOUR, 60], day: [DAY, 48], month: [30 * DAY, 60] };
const NARROWEST = 1_000;
const BARS = 60;
/** Bars begin and end where a clock would. */
const WIDTHS = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000]
  .concat([1, 2, 5, 10, 15, 30].map((n) => n * MINUTE))
  .concat([1, 2, 3, 6, 12, 24, 48, 168].map((n) => n * HOUR));

/** The window that is shown: from now on, or a fixed one that was zoomed to. */
function windowOf(span, zoom) {
  if (zoom) {
    const width = WIDTHS.find((width) => (zoom.to - zoom.from) / width <= BARS) ?? WIDTHS.at(-1);
    const from = Math.floor(zoom.from / width) * width;
    const bars = Math.min(1_000, Math.max(1, Math.ceil((zoom.to - from) / width)));
    return { from, to: from + width * bars, bars, width };
  }
  const [length, bars] = SPANS[span];
  const width = length / bars;
  // On whole widths, so that bars keep their place while time goes by.
  const from = Math.floor(Date.now() / width) * width;
  return { from, to: from + length, bars, width };
}

/** What is due already is counted in the bar of now, and would dwarf all that comes: it is told apart. */
function apart({ view, counts }, due) {
  const now = Date.now();
  if (!view || !due || now < view.from || now >= view.to) return { counts, overdue: 0 };
  const bar = Math.min(counts.length - 1, Math.floor((now - view.from) / view.width));
  // Counted a moment apart, so that one may know of more than the other.
  const overdue = Math.min(due, counts[bar]);
  return { counts: counts.map((n, at) => (at === bar ? n - overdue : n)), overdue };
}

function label(ms, width) {
  if (width < MINUTE) return clock(ms);
  if (width < HOUR) return clockShort(ms);
  // Two bars of one day need the time to be told apart.
  return width < DAY ? `${dayShort(ms)} ${clockShort(ms)}` : dayShort(ms);
}

/** Where the window begins or ends: over days and more the date says it, also today's. */
const edge = (ms, { from, to }) => (to - from > DAY ? `${dayShort(ms)} ${clockShort(ms)}` : time(ms));

export function Histogram() {
  const [span, setSpan] = useState("hour");
  const [zoom, setZoom] = useState(null);
  const [shown, setShown] = useState({ view: null, counts: [], error: null });
  const [turn, again] = useState(0);
  const now = useStore(live, (state) => state.now);
  const stamp = now?.t;
  useEffect(() => {
    const stop = new AbortController();
    const view = windowOf(span, zoom);
    api.forecast({ from: view.from, to: view.to, buckets: view.bars }, stop.signal).then(
      ({ buckets }) => !stop.signal.aborted && setShown({ view, counts: buckets.map((bucket) => bucket.count), error: null }),
      (error) => !stop.signal.aborted && setShown((old) => ({ ...old, error })),
    );
    return () => stop.abort();
  }, [span, zoom, stamp, turn]);

  const choose = (next) => {
    setZoom(null);
    setSpan(next);
  };
  const narrow = (from, to) => to - from >= NARROWEST && setZoom({ from, to });
  /** Nearer or further, by the button: from where the window begins, so that what comes next stays in sight. */
  const scale = (by) => {
    const { from, to } = shown.view;
    const length = Math.min(366 * DAY, Math.max(10 * NARROWEST, (to - from) * by));
    setZoom({ from, to: from + Math.round(length) });
  };
  const { counts, overdue } = apart(shown, now?.due ?? 0);
  const total = counts.reduce((sum, n) => sum + n, 0);
  return html`<section class="card" aria-labelledby="comes-due">
    <div class="head">
      <div><h2 id="comes-due">${t("due.title")}</h2>
        <p class="quiet" title=${exact(total)}>${shown.view ? t("due.total", { n: total, from: edge(shown.view.from, shown.view), to: edge(shown.view.to, shown.view) }) : t("loading")}</p></div>
      <div class="end">
        ${zoom ? html`<button class="btn small" onClick=${() => setZoom(null)}>${t("due.live")}</button>` : null}
        <button class="btn small" aria-label=${t("due.in")} title=${t("due.in")} disabled=${!shown.view} onClick=${() => scale(0.5)}>+</button>
        <button class="btn small" aria-label=${t("due.out")} title=${t("due.out")} disabled=${!shown.view} onClick=${() => scale(2)}>−</button>
        <${Choice} label=${t("due.span")} value=${zoom ? null : span} onChange=${choose}
          options=${Object.keys(SPANS).map((name) => [name, t(`due.${name}`)])} />
      </div>
    </div>
    ${shown.error ? html`<${ErrorNote} error=${shown.error} again=${() => again((n) => n + 1)} />` : null}
    <${Busy} on=${!shown.view && !shown.error} />
    ${shown.view ? html`<${Bars} view=${shown.view} counts=${counts} onZoom=${narrow} />` : null}
    <p class="quiet small">${overdue ? html`<a class="due-now" href=${to("messages", { state: "pending", to: "now" })}>${t("due.now", { n: overdue })}</a> ` : null}${t("due.hint")}</p>
  </section>`;
}

function Bars({ view, counts, onZoom }) {
  const [at, setAt] = useState(0);
  const [drag, setDrag] = useState(null);
  const box = useRef(null);
  const most = useMemo(() => Math.max(1, ...counts), [counts]);
  const from = (bar) => view.from + bar * view.width;
  const open = (bar) => go("messages", { state: "pending", from: Math.floor(from(bar)), to: Math.ceil(from(bar + 1)) });
  const words = (bar) => t("due.bar", { n: counts[bar], from: label(from(bar), view.width), to: label(from(bar + 1), view.width) });

  const move = (to) => {
    const bar = Math.max(0, Math.min(counts.length - 1, to));
    setAt(bar);
    box.current.children[bar]?.focus();
  };
  const onKey = (event) => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: counts.length - 1 }[event.key];
    if (to !== undefined) move(to);
    else if (event.key === "+") onZoom(from(at), from(at + 1));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const barAt = (event) => {
    const { left, width } = box.current.getBoundingClientRect();
    return Math.max(0, Math.min(counts.length - 1, Math.floor(((event.clientX - left) / width) * counts.length)));
  };
  const onDown = (event) => event.button === 0 && setDrag({ start: barAt(event), end: barAt(event) });
  const onMove = (event) => {
    if (drag && event.buttons === 1) setDrag({ ...drag, end: barAt(event) });
    else if (drag) setDrag(null);
    setAt(barAt(event));
  };
  const onUp = () => {
    const [low, high] = drag ? [Math.min(drag.start, drag.end), Math.max(drag.start, drag.end)] : [0, 0];
    setDrag(null);
    if (drag && high > low) onZoom(from(low), from(high + 1));
  };
  const chosen = (bar) => drag && bar >= Math.min(drag.start, drag.end) && bar <= Math.max(drag.start, drag.end);
  const place = Math.min(at, counts.length - 1);
  const marks = [0, 0.25, 0.5, 0.75].map((part) => Math.floor(counts.length * part));
  return html`<div class="histogram">
    <div class="bars" role="group" aria-label=${t("due.group")} ref=${box} onKeyDown=${onKey}
      onPointerDown=${onDown} onPointerMove=${onMove} onPointerUp=${onUp}>
      ${counts.map(
        (n, bar) => html`<button key=${bar} type="button" class=${`bar-slot ${chosen(bar) ? "chosen" : ""}`} aria-label=${words(bar)}
          tabindex=${bar === place ? 0 : -1} onFocus=${() => setAt(bar)}
          onClick=${(event) => (!drag || drag.start === drag.end) && (event.altKey ? onZoom(from(bar), from(bar + 1)) : open(bar))}>
          <span class="bar-fill" style=${{ height: `${n ? Math.max(2, (n / most) * 100) : 0}%` }}></span>
        </button>`,
      )}
    </div>
    <div class="bar-axis num" aria-hidden="true">${marks.map((bar) => html`<span key=${bar}>${label(from(bar), view.width)}</span>`)}</div>
    <p class="bar-words num" aria-hidden="true">${words(place)}</p>
  </div>`;
}
