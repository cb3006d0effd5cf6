// Searches all sections for text that has every word, so that it works without spaces between words, as in Chinese.
const FOUND_MAX = 30;

function matches(sections, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = [];
  for (const section of words.length ? sections : []) {
    const title = section.title.toLowerCase();
    const text = `${title} ${section.text.toLowerCase()}`;
    if (!words.every((word) => text.includes(word))) continue;
    const inTitle = words.filter((word) => title.includes(word)).length;
    found.push({ section, inTitle, at: text.indexOf(words[0]) - title.length - 1 });
  }
  return found.sort((a, b) => b.inTitle - a.inTitle).slice(0, FOUND_MAX);
}

function item({ section, at }, root) {
  const line = document.createElement("li");
  const link = document.createElement("a");
  link.href = `${root}/${section.url}`;
  link.textContent = section.page === section.title ? section.title : `${section.page} › ${section.title}`;
  const excerpt = document.createElement("p");
  excerpt.textContent = section.text.slice(Math.max(0, at - 60), Math.max(0, at) + 140);
  line.append(link, excerpt);
  return line;
}

if (typeof document !== "undefined") {
  const { root } = document.currentScript.dataset;
  const [input, list, article] = ["input", "#found", "article"].map((name) => document.querySelector(name));
  const show = () => {
    const found = matches(window.sections, input.value);
    list.replaceChildren(...found.map((each) => item(each, root)));
    list.hidden = !input.value.trim();
    article.hidden = !list.hidden;
  };
  list.addEventListener("click", () => {
    input.value = "";
    show();
  });
  // The index is loaded by whoever searches.
  input.addEventListener("input", () => {
    if (window.sections) return show();
    const script = Object.assign(document.createElement("script"), { src: `${root}/index.js`, onload: show });
    if (!document.querySelector("script[src$='/index.js']")) document.head.append(script);
  });
}
if (typeof module !== "undefined") module.exports = { matches };
