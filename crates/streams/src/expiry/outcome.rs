//! One run of a handler: its outcome, and the wait before the next.

use std::{fmt::Display, panic::AssertUnwindSafe, pin::Pin, sync::Arc, time::Duration};

use duly_core::Verdict;
use futures_util::FutureExt;

use crate::{Retry, handler_scope, listen::panic_message};

pub(super) type HandlerFuture = Pin<Box<dyn Future<Output = Result<Verdict, String>> + Send>>;
pub(super) type Handler<T> = Arc<dyn Fn(T) -> HandlerFuture + Send + Sync>;

/// Wraps a handler so that all its panics, also those before its first await, happen inside the future.
pub(super) fn handler<T, H, F, V, E>(streams: u64, handler: H) -> Handler<T>
where
    T: Send + 'static,
    H: Fn(T) -> F + Send + Sync + 'static,
    F: Future<Output = Result<V, E>> + Send + 'static,
    V: Into<Verdict>,
    E: Display,
{
    let handler = Arc::new(handler);
    Arc::new(move |input| {
        let handler = handler.clone();
        // The alternate form of an error prints its whole chain.
        let work = async move { handler(input).await.map(Into::into).map_err(|why| format!("{why:#}")) };
        Box::pin(handler_scope::enter(streams, work))
    })
}

/// The outcome of a run.
pub(super) enum RunOutcome {
    Done,
    /// Retry, after the default wait if the handler named none.
    Retry(Option<Duration>, String),
    GivenUp(String),
}

/// Runs the handler, at most for `limit`.
pub(super) async fn run(work: HandlerFuture, limit: Duration) -> RunOutcome {
    let why = match tokio::time::timeout(limit, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(Ok(Verdict::Done))) => return RunOutcome::Done,
        Ok(Ok(Ok(Verdict::Retry { after, reason }))) => {
            return RunOutcome::Retry(
                after,
                reason.unwrap_or_else(|| "the handler asked for a retry".into()),
            );
        }
        Ok(Ok(Ok(Verdict::GiveUp(why)))) => return RunOutcome::GivenUp(why),
        Ok(Ok(Ok(other))) => format!("the handler returned an unknown verdict: {other:?}"),
        Ok(Ok(Err(why))) => why,
        Ok(Err(panic)) => format!("the handler panicked: {}", panic_message(&*panic)),
        Err(_) => format!("the handler took longer than {limit:?} and was ended"),
    };
    RunOutcome::Retry(None, why)
}

/// The waits and attempts of a handler without a policy of its own.
pub(super) fn default_retry(attempts: u32) -> Retry {
    Retry { attempts, max: Duration::from_secs(5 * 60), ..Retry::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let retry = default_retry(100);
        let waits: Vec<u64> = [1, 2, 3, 9, 10, 1_000].map(|attempts| retry.wait(attempts).as_secs()).into();
        assert_eq!(waits, [1, 2, 4, 256, 300, 300]);
    }
}
