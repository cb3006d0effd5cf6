//! Detects a proxy in front of a server without tokens.
//!
//! Without tokens the server listens on loopback only, and every caller may do everything. A proxy on this machine gives that right to
//! everybody who can reach the proxy.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use http::HeaderMap;

/// Interval of the warning while a proxy is seen.
const WARN_EVERY: Duration = Duration::from_secs(600);

/// The warning in the log and in `/readyz`.
pub(super) const WARNING: &str = "a proxy passes calls on to this server, which asks nobody for a token: whoever reaches the proxy may \
                                  do everything; configure auth.tokens";

/// When a proxy was last seen and last warned about, in milliseconds since the start; 0 is never.
#[derive(Debug, Default)]
pub(super) struct Proxied {
    seen: AtomicU64,
    warned_at: AtomicU64,
}

impl Proxied {
    /// Checks a request to a server without tokens; `since` is the age of the server.
    pub(super) fn observe(&self, headers: &HeaderMap, since: Duration) {
        if !is_forwarded(headers) {
            return;
        }
        let now = super::millis(since).max(1);
        self.seen.store(now, Relaxed);
        let warned_at = self.warned_at.load(Relaxed);
        let is_due = warned_at == 0 || now.saturating_sub(warned_at) >= super::millis(WARN_EVERY);
        // Of concurrent requests one logs the warning.
        if is_due && self.warned_at.compare_exchange(warned_at, now, Relaxed, Relaxed).is_ok() {
            tracing::warn!(detail = WARNING, "proxy detected without tokens");
        }
    }

    /// The warning, if a proxy was seen recently.
    pub(super) fn warning(&self, since: Duration) -> Option<&'static str> {
        let seen = self.seen.load(Relaxed);
        let is_late = super::millis(since).saturating_sub(seen) < super::millis(WARN_EVERY);
        (seen > 0 && is_late).then_some(WARNING)
    }
}

/// Whether a header shows that a proxy forwarded this request.
fn is_forwarded(headers: &HeaderMap) -> bool {
    let of_proxy =
        |name: &str| name == "forwarded" || name == "x-real-ip" || name.starts_with("x-forwarded-");
    headers.keys().any(|name| of_proxy(name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn with(name: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static("a"))])
    }

    #[test]
    fn a_proxy_is_known_by_its_headers_and_told_of_for_a_while() {
        for name in ["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-real-ip"] {
            let proxied = Proxied::default();
            proxied.observe(&with(name), Duration::ZERO);
            assert_eq!(proxied.warning(Duration::from_secs(1)), Some(WARNING), "{name}");
            assert_eq!(proxied.warning(WARN_EVERY * 2), None, "{name}");
        }
        let proxied = Proxied::default();
        proxied.observe(&with("x-forwarding"), Duration::ZERO);
        proxied.observe(&with("host"), Duration::ZERO);
        assert_eq!(proxied.warning(Duration::ZERO), None);
    }

    #[test]
    fn the_log_is_warned_once_in_a_while() {
        let proxied = Proxied::default();
        let warned_at = |at: Duration| {
            proxied.observe(&with("forwarded"), at);
            proxied.warned_at.load(Relaxed)
        };
        assert_eq!(warned_at(Duration::from_secs(1)), 1_000);
        assert_eq!(warned_at(Duration::from_secs(2)), 1_000);
        assert_eq!(warned_at(Duration::from_secs(1) + WARN_EVERY), 1_000 + super::super::millis(WARN_EVERY));
    }
}
