//! The only place where this library reads clocks, sleeps and draws random numbers.

use std::{
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Milliseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "a library of its own, which may be used without the Clock port"
)]
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a library of its own, which may be used without the Clock port"
)]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "a library of its own, which may be used without the Clock port"
)]
pub(crate) async fn sleep(span: Duration) {
    tokio::time::sleep(span).await;
}

/// A random number: the keys of a hasher come from the system.
pub(crate) fn random_u64() -> u64 {
    RandomState::new().hash_one(0)
}
