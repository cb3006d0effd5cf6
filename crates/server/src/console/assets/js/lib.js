// The one place that knows which library draws.
export {
  html,
  render,
  createContext,
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "../vendor/htm-preact-3.1.1.js";
