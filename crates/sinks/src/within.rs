//! Time limits by the clock of the sink.

use duly_core::{Clock, Monotonic};

/// The result of `work`, or nothing if it does not end by `end`.
pub(crate) async fn within<T>(clock: &dyn Clock, end: Monotonic, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = clock.sleep_until(end) => None,
    }
}
