//! The only door for time.

use std::{future::Future, pin::Pin};

use crate::{Monotonic, Now};

/// A wait that ends by itself.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send + 'static>>;

/// Tells the time and waits.
///
/// The contract, each line proved by the case of that name in `testkit::clock`:
/// - `monotonic_time_never_goes_back`, whatever wall time does.
/// - `a_sleep_never_ends_early`: when it ends, `now().mono()` has reached its end.
/// - `a_sleep_into_the_past_ends_at_once`.
pub trait Clock: Send + Sync + 'static {
    /// Both clocks, read at the same moment.
    fn now(&self) -> Now;

    /// Waits until monotonic time reaches `until`.
    fn sleep_until(&self, until: Monotonic) -> Sleep;
}
