// Words in the reader's language. A key without words shows itself, so that a gap is seen and not hidden.
import { prefs } from "./prefs.js";
import en from "../words/en.js";
import zh from "../words/zh.js";

const WORDS = { en, zh };

/** The words of `key`; `{name}` takes the value of that name, and of two forms `n` chooses the one for 1. */
export function t(key, values = {}) {
  const found = WORDS[prefs.get().language][key] ?? en[key] ?? key;
  const text = Array.isArray(found) ? found[Number(values.n) === 1 ? 0 : found.length - 1] : found;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? shown(values[name]) : whole));
}

/** Whether there are words for it. */
export const known = (key) => key in en;

export const locale = () => (prefs.get().language === "zh" ? "zh-CN" : "en-GB");

const shown = (value) => (typeof value === "number" ? value.toLocaleString(locale()) : String(value));
