// Lines over the last minutes, drawn by uPlot, which vendor/ puts on the window.
import { html, useEffect, useRef } from "./lib.js";
import { clock, clockShort } from "./format.js";
import { t } from "./i18n.js";
import { prefs } from "./prefs.js";
import { useStore } from "./store.js";
import { data } from "./series.js";

const HEIGHT = 168;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** 1, 10, 100 …: the lines between them say little. */
function tens(u, axis, min, max) {
  const found = [];
  for (let n = Math.ceil(Math.log10(min) - 1e-9); n <= Math.log10(max) + 1e-9; n += 1) found.push(10 ** n);
  return found;
}

/** With seconds, as long as minutes alone would all be the same. */
function times(u, ticks) {
  const { min, max } = u.scales.x;
  return ticks.map((at) => (max - min < 240 ? clock : clockShort)(at * 1_000));
}

/** What is counted has no parts: an axis of 0, 0, 0, 1, 1 says nothing. */
const WHOLE_LEAST = 4;
const STEPS = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();

function options({ lines, show, log, whole }, width) {
  const axis = { stroke: colour("ink-3"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 7 }, drag: { x: false, y: false } },
    padding: [8, 8, 0, 0],
    scales: {
      x: { time: true },
      y: log ? { distr: 3, log: 10 } : { range: (u, min, max) => [0, Math.max(whole ? WHOLE_LEAST : 1, (max ?? 0) * 1.12)] },
    },
    axes: [
      { ...axis, values: times, space: 76, size: 26 },
      { ...axis, values: (u, ticks) => ticks.map((n) => (n == null ? "" : show(n))), size: 64, space: 34, ...(log ? { splits: tens } : {}), ...(whole ? { incrs: STEPS } : {}) },
    ],
    series: [
      {},
      ...lines.map(({ label, tone, fill }) => ({
        label,
        stroke: colour(tone),
        width: 2,
        fill: fill ? `${colour(tone)}1c` : undefined,
        points: { show: false },
        spanGaps: true,
      })),
    ],
  };
}

/**
 * `whole`: the values are counts. `lines`: `{ name, label, tone, fill }`, the name being one of the series'. `show` writes a value.
 * The picture is for the eyes; the latest values stand in the legend, for everybody.
 */
export function Plot({ title, lines, show, log, whole, turn, now }) {
  const box = useRef(null);
  const plot = useRef(null);
  const { theme, language } = useStore(prefs);
  const names = lines.map((line) => line.name);

  useEffect(() => {
    const make = () => {
      plot.current?.destroy();
      const width = Math.max(120, box.current.clientWidth);
      plot.current = new window.uPlot(options({ lines, show, log, whole }, width), cleaned(names, log), box.current);
    };
    make();
    const sizes = new ResizeObserver(([entry]) => {
      const width = Math.max(120, Math.floor(entry.contentRect.width));
      if (plot.current && width !== plot.current.width) plot.current.setSize({ width, height: HEIGHT });
    });
    sizes.observe(box.current);
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", make);
    return () => {
      sizes.disconnect();
      system.removeEventListener("change", make);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [theme, language]);

  useEffect(() => {
    plot.current?.setData(cleaned(names, log));
  }, [turn]);

  return html`<section class="card plot" aria-label=${title}>
    <div class="head"><h2>${title}</h2>
      <ul class="legend end">
        ${lines.map(
          ({ name, label, tone }) => html`<li key=${name}><i class=${`dot ${tone}`}></i>${label} <b class="num">${show(now?.[name])}</b></li>`,
        )}
      </ul>
    </div>
    <div class="plot-box" ref=${box} aria-hidden="true"></div>
    <p class="sr-only">${t("plot.since", { time: clock((data("t")[0][0] ?? Date.now() / 1_000) * 1_000) })}</p>
  </section>`;
}

/** A logarithm has no zero. */
function cleaned(names, log) {
  const [times, ...lines] = data(...names);
  return [times, ...lines.map((line) => (log ? line.map((n) => (n == null ? null : Math.max(n, 0.01))) : line))];
}
