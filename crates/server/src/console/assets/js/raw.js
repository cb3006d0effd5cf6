// JSON as it was written: numbers that are too long for a browser keep all their digits.

/** Throws if it is no JSON. */
export class Raw {
  constructor(text) {
    JSON.parse(text);
    this.text = text.trim();
  }
}

/** A message as the API reads it; its `json` may be [Raw]. */
export function write(message) {
  if (!(message.json instanceof Raw)) return JSON.stringify(message);
  const { json, ...rest } = message;
  const head = JSON.stringify(rest).slice(0, -1);
  return `${head}${head.length > 1 ? "," : ""}"json":${json.text}}`;
}
