// What can be done to one message or one lane, and undone.
import { api } from "./api.js";
import { time } from "./format.js";
import { t } from "./i18n.js";
import { refresh } from "./live.js";
import { errorText } from "./parts.js";
import { Raw } from "./raw.js";
import { showToast } from "./toasts.js";

/** Does it, says so, and tells `after` when the world has changed; also after an undo. */
async function perform(work, words, { undo, after } = {}) {
  try {
    const answer = await work();
    const maybe = answer?.maybe_delivered ? ` ${t("maybe")}` : "";
    showToast(words(answer) + maybe, { undo: undo && (() => perform(undo, () => t("undone"), { after })) });
    refresh();
    after?.();
    return true;
  } catch (error) {
    showToast(errorText(error), { bad: true });
    after?.();
    return false;
  }
}

/** The bytes of a text. */
const base64 = (text) => btoa(Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join(""));

/** What must be sent for the same message to be there again. */
export function again(message) {
  const same = {};
  for (const name of ["id", "sink", "topic", "tag", "key", "priority", "properties", "retry"]) {
    if (message[name] != null) same[name] = message[name];
  }
  if (message.max_lateness_ms != null) same.max_lateness = message.max_lateness_ms;
  same.deliver_at = message.deliver_at_ms;
  if (message.body_base64 != null) same.body_base64 = message.body_base64;
  else if (message.body != null && /json/.test(message.content_type ?? "")) same.json = new Raw(message.body);
  // Bytes that happen to be text stay bytes: as text, they would go out with another content type.
  else if (message.body != null && /octet-stream/.test(message.content_type ?? "")) same.body_base64 = base64(message.body);
  else if (message.body != null) same.body = message.body;
  return same;
}

export async function cancel(id, after) {
  let whole;
  try {
    // Its body is gone once it is cancelled: what undo needs is asked for first.
    whole = await api.get(id);
  } catch (error) {
    return showToast(errorText(error), { bad: true });
  }
  return perform(() => api.cancel(id), () => t("done.cancel", { id }), { undo: () => api.send(again(whole)), after });
}

const back = (message) => () => api.reschedule(message.id, { deliver_at: message.deliver_at_ms });

export const fire = (message, after) =>
  perform(() => api.fire(message.id), () => t("done.fire", { id: message.id }), { undo: back(message), after });

export const reschedule = (message, when, after) =>
  perform(
    () => api.reschedule(message.id, when),
    (answer) => t("done.reschedule", { id: message.id, time: time(answer.deliver_at_ms) }),
    { undo: back(message), after },
  );

export const replay = (id, after) =>
  perform(async () => one(await api.many("replay", { ids: [id] })), () => t("done.replay", { id }), { after });

/** The answer for many, where only one was meant: what did not happen is an error here. */
function one(answer) {
  if (answer.done === 1) return { maybe_delivered: answer.maybe_delivered > 0 };
  throw new Error(t(answer.unknown ? "error.gone" : "error.too_late"));
}

export function pause(lane, after) {
  const name = lane.topic ?? lane.sink;
  return perform(() => api.lane(lane, "pause"), () => t("done.pause", { name }), { undo: () => api.lane(lane, "resume"), after });
}

export function resume(lane, after) {
  const name = lane.topic ?? lane.sink;
  return perform(() => api.lane(lane, "resume"), () => t("done.resume", { name }), { undo: () => api.lane(lane, "pause"), after });
}

export const probe = (sink, after) => perform(() => api.lane({ sink }, "probe"), () => t("done.probe", { name: sink }), { after });
