//! The port for time.

use std::{future::Future, pin::Pin, sync::Arc};

use crate::{Monotonic, Now};

/// A running sleep.
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

    /// Whether time passes by itself. On a clock that a test moves it does not, so that waiting for the end of a grace
    /// period may never end.
    fn runs_by_itself(&self) -> bool {
        true
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Now {
        (**self).now()
    }

    fn sleep_until(&self, until: Monotonic) -> Sleep {
        (**self).sleep_until(until)
    }

    fn runs_by_itself(&self) -> bool {
        (**self).runs_by_itself()
    }
}
