// Numbers, spans and times as people read them.
import { locale, t } from "./i18n.js";

const kept = new Map();

function intl(Kind, options) {
  const key = `${Kind.name} ${locale()} ${JSON.stringify(options)}`;
  if (!kept.has(key)) kept.set(key, new Kind(locale(), options));
  return kept.get(key);
}

/** 12,345; from ten million on 12.3M, with all digits to be had from a title. */
export function count(n) {
  if (n == null) return "–";
  return n >= 1e7
    ? intl(Intl.NumberFormat, { notation: "compact", maximumFractionDigits: 1 }).format(n)
    : intl(Intl.NumberFormat, { maximumFractionDigits: 0 }).format(n);
}

export const exact = (n) => (n == null ? "" : intl(Intl.NumberFormat, { maximumFractionDigits: 3 }).format(n));

export function rate(n) {
  if (n == null) return "–";
  return intl(Intl.NumberFormat, { maximumFractionDigits: n < 10 ? 1 : 0 }).format(n);
}

const UNITS = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1_000],
];

/** 850 µs, 3.2 ms, 12 s, 4 min 10 s, 2 h, 3 d 4 h: two parts at most, or one. */
export function span(ms, parts = 2) {
  if (ms == null) return "–";
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1_000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1_000).toFixed(1)} ${t("unit.s")}`;
  const at = UNITS.findIndex(([, size]) => ms >= size);
  const [name, size] = UNITS[at];
  const whole = Math.floor(ms / size);
  const next = UNITS[at + 1];
  const rest = next ? Math.floor((ms % size) / next[1]) : 0;
  const first = `${whole} ${t(`unit.${name}`)}`;
  return rest && parts > 1 ? `${first} ${rest} ${t(`unit.${next[0]}`)}` : first;
}

/** "in 5 minutes", "3 hours ago". */
export function relative(ms, now = Date.now()) {
  const by = ms - now;
  const [unit, size] =
    [["day", 86_400_000], ["hour", 3_600_000], ["minute", 60_000]].find(([, size]) => Math.abs(by) >= size * 0.95) ??
    ["second", 1_000];
  return intl(Intl.RelativeTimeFormat, { numeric: "auto" }).format(Math.round(by / size), unit);
}

const DAY = { year: "numeric", month: "short", day: "numeric" };
const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };

export const clock = (ms) => intl(Intl.DateTimeFormat, CLOCK).format(ms);
export const clockShort = (ms) => intl(Intl.DateTimeFormat, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }).format(ms);
export const dayShort = (ms) => intl(Intl.DateTimeFormat, { month: "short", day: "numeric" }).format(ms);

/** The whole time in the reader's zone; today's without its date. */
export function time(ms) {
  const today = new Date().toDateString() === new Date(ms).toDateString();
  return today ? clock(ms) : intl(Intl.DateTimeFormat, { ...DAY, ...CLOCK }).format(ms);
}

export const timeExact = (ms) => new Date(ms).toISOString();

/** What an input of the kind datetime-local holds. */
export function toInput(ms) {
  if (ms == null || ms === "") return "";
  const at = new Date(Number(ms));
  const two = (n) => String(n).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day}T${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

export const fromInput = (text) => (text ? new Date(text).getTime() : null);
