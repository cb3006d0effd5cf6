//! One run of a handler: what came of it, and how long to wait before the next.

use std::{any::Any, fmt::Display, panic::AssertUnwindSafe, pin::Pin, sync::Arc, time::Duration};

use futures_util::FutureExt;

pub(super) type Outcome = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;
pub(super) type Handler<T> = Arc<dyn Fn(T) -> Outcome + Send + Sync>;

/// A handler whose panics, also those before its first await, are within the future.
pub(super) fn handler<T, H, F, E>(handler: H) -> Handler<T>
where
    T: Send + 'static,
    H: Fn(T) -> F + Send + Sync + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display,
{
    let handler = Arc::new(handler);
    Arc::new(move |given| {
        let handler = handler.clone();
        Box::pin(async move { handler(given).await.map_err(|why| why.to_string()) })
    })
}

/// Runs it so long at most; or says why it did not succeed.
pub(super) async fn run(work: Outcome, limit: Duration) -> Result<(), String> {
    match tokio::time::timeout(limit, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => Err(format!("the handler panicked: {}", words(&*panic))),
        Err(_) => Err(format!("the handler took longer than {limit:?} and was ended")),
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it did not say why")
}

/// Waits between tries: they double from the first to the longest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    pub(super) first: Duration,
    pub(super) longest: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { first: Duration::from_secs(1), longest: Duration::from_secs(5 * 60) }
    }
}

impl Retry {
    /// The wait after so many tries.
    pub(super) fn after(&self, tries: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(tries.saturating_sub(1));
        self.first.saturating_mul(doubled).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let retry = Retry::default();
        let waits: Vec<u64> = [1, 2, 3, 9, 10, 1_000].map(|tries| retry.after(tries).as_secs()).into();
        assert_eq!(waits, [1, 2, 4, 256, 300, 300]);
    }
}
