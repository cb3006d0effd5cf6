// What this person likes: kept in this browser, and only there.
import { createStore } from "./store.js";

export const THEMES = ["system", "light", "dark"];
export const LANGUAGES = ["en", "zh"];

function kept(name, allowed, otherwise) {
  try {
    const value = localStorage.getItem(`duly.${name}`);
    return allowed.includes(value) ? value : otherwise;
  } catch {
    return otherwise;
  }
}

function keep(name, value) {
  try {
    localStorage.setItem(`duly.${name}`, value);
  } catch {
    // Without storage it holds until the page is left.
  }
}

function languageOfBrowser() {
  const first = (navigator.languages ?? []).find((tag) => /^(en|zh)\b/i.test(tag));
  return first && /^zh/i.test(first) ? "zh" : "en";
}

export const prefs = createStore({
  theme: kept("theme", THEMES, "system"),
  language: kept("language", LANGUAGES, languageOfBrowser()),
  shortcuts: kept("shortcuts", ["on", "off"], "on"),
});

export function setPref(name, value) {
  keep(name, value);
  prefs.set({ [name]: value });
}

function apply({ theme, language }) {
  const root = document.documentElement;
  if (theme === "system") delete root.dataset.theme;
  else root.dataset.theme = theme;
  root.lang = language === "zh" ? "zh-CN" : "en";
}

prefs.watch(apply);
apply(prefs.get());
