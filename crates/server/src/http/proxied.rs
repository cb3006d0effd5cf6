//! A proxy before a server that asks nobody for a token.
//!
//! On loopback everybody may do everything as long as no token is configured, because only this machine can call. A proxy on this machine
//! makes that everybody who reaches the proxy.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use http::HeaderMap;

/// The warning comes again after so long, if there is still a proxy.
const WARN_EVERY: Duration = Duration::from_secs(600);

/// What the log and `/readyz` say.
pub(super) const WARNING: &str = "a proxy passes calls on to this server, which asks nobody for a token: whoever reaches the proxy may \
                                  do everything; configure auth.tokens";

/// When a proxy was last seen, and last told of, in milliseconds since the server began; 0 is never.
#[derive(Debug, Default)]
pub(super) struct Proxied {
    seen: AtomicU64,
    warned_at: AtomicU64,
}

impl Proxied {
    /// Notes a call on a listener that needs no token, `since` the server began.
    pub(super) fn observe(&self, headers: &HeaderMap, since: Duration) {
        if !is_forwarded(headers) {
            return;
        }
        let now = super::millis(since).max(1);
        self.seen.store(now, Relaxed);
        let warned_at = self.warned_at.load(Relaxed);
        let is_due = warned_at == 0 || now.saturating_sub(warned_at) >= super::millis(WARN_EVERY);
        // Of several calls at once, one warns.
        if is_due && self.warned_at.compare_exchange(warned_at, now, Relaxed, Relaxed).is_ok() {
            tracing::warn!("{WARNING}");
        }
    }

    /// The warning, if a proxy was seen of late.
    pub(super) fn warning(&self, since: Duration) -> Option<&'static str> {
        let seen = self.seen.load(Relaxed);
        let is_late = super::millis(since).saturating_sub(seen) < super::millis(WARN_EVERY);
        (seen > 0 && is_late).then_some(WARNING)
    }
}

/// Whether a proxy says that it passed this call on.
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
