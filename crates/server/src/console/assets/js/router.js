// Which screen: kept behind the #, so that any path before it will do.
import { createStore } from "./store.js";

function read() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decode);
  return { parts, query: Object.fromEntries(new URLSearchParams(query)) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = createStore(read());
addEventListener("hashchange", () => route.set(read()));

/** The address of a screen: `to("messages", "order-42")`, `to("messages", { state: "dead" })`. */
export function to(...parts) {
  const query = typeof parts.at(-1) === "object" ? parts.pop() : {};
  const path = parts.map(encodeURIComponent).join("/");
  const search = new URLSearchParams(
    Object.entries(query).filter(([, value]) => value != null && value !== "").map(([name, value]) => [name, String(value)]),
  ).toString();
  return `#/${path}${search ? `?${search}` : ""}`;
}

export const go = (...parts) => {
  location.hash = to(...parts);
};
