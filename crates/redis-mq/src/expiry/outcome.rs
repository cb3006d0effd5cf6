//! One run of a handler: what came of it, and how long to wait before the next.

use std::{any::Any, fmt::Display, panic::AssertUnwindSafe, pin::Pin, sync::Arc, time::Duration};

use duly_core::Verdict;
use futures_util::FutureExt;

use crate::handler_scope;

pub(super) type Outcome = Pin<Box<dyn Future<Output = Result<Verdict, String>> + Send>>;
pub(super) type Handler<T> = Arc<dyn Fn(T) -> Outcome + Send + Sync>;

/// A handler whose panics, also those before its first await, are within the future.
pub(super) fn handler<T, H, F, V, E>(mq: u64, handler: H) -> Handler<T>
where
    T: Send + 'static,
    H: Fn(T) -> F + Send + Sync + 'static,
    F: Future<Output = Result<V, E>> + Send + 'static,
    V: Into<Verdict>,
    E: Display,
{
    let handler = Arc::new(handler);
    Arc::new(move |given| {
        let handler = handler.clone();
        // The alternate form of an error that has a chain prints all of it.
        let work = async move { handler(given).await.map(Into::into).map_err(|why| format!("{why:#}")) };
        Box::pin(handler_scope::enter(mq, work))
    })
}

/// How a run ended.
pub(super) enum Ended {
    Done,
    /// To be tried again, after the usual wait if the handler named none.
    Again(Option<Duration>, String),
    GivenUp(String),
}

/// Runs it so long at most.
pub(super) async fn run(work: Outcome, limit: Duration) -> Ended {
    let why = match tokio::time::timeout(limit, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(Ok(Verdict::Done))) => return Ended::Done,
        Ok(Ok(Ok(Verdict::Retry { after, reason }))) => {
            return Ended::Again(after, reason.unwrap_or_else(|| "the handler said: retry".into()));
        }
        Ok(Ok(Ok(Verdict::GiveUp(why)))) => return Ended::GivenUp(why),
        Ok(Ok(Ok(other))) => format!("the handler said what is not known here: {other:?}"),
        Ok(Ok(Err(why))) => why,
        Ok(Err(panic)) => format!("the handler panicked: {}", words(&*panic)),
        Err(_) => format!("the handler took longer than {limit:?} and was ended"),
    };
    Ended::Again(None, why)
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
