// The one place that knows which libraries draw.
import htm from "../vendor/htm-3.1.1.js";
import { h } from "../vendor/preact-10.29.8.js";

/** HTML as a template: what is put in becomes text or attributes, never markup. */
export const html = htm.bind(h);

export { render } from "../vendor/preact-10.29.8.js";
export { useEffect, useErrorBoundary, useMemo, useRef, useState } from "../vendor/preact-hooks-10.29.8.js";
