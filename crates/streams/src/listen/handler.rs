//! Handlers: of one entry or a batch, async or blocking.

use std::{fmt::Display, pin::Pin, sync::Arc, time::Duration};

use duly_core::Verdict;
use serde::de::DeserializeOwned;

use crate::{Entry, entry::Raw};

/// The verdict of a batch handler: all entries are done, or one verdict for each.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdicts {
    /// All entries are done.
    Done,
    /// One verdict for each entry, in order. A missing one counts as a failure.
    Each(Vec<Verdict>),
}

impl From<()> for Verdicts {
    fn from((): ()) -> Self {
        Self::Done
    }
}

impl From<Vec<Verdict>> for Verdicts {
    fn from(each: Vec<Verdict>) -> Self {
        Self::Each(each)
    }
}

/// How the handler ended for one entry.
pub(super) enum HandlerOutcome {
    Done,
    Failed { after: Option<Duration>, why: String },
    Dead(String),
    Undecodable(Box<Raw>, String),
}

impl From<Verdict> for HandlerOutcome {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Done => Self::Done,
            Verdict::Retry { after, reason } => {
                Self::Failed { after, why: reason.unwrap_or_else(|| "the handler asked for a retry".into()) }
            }
            Verdict::GiveUp(why) => Self::Dead(why),
            other => Self::failed(format!("the handler returned an unknown verdict: {other:?}")),
        }
    }
}

impl HandlerOutcome {
    pub(super) fn failed(why: impl Display) -> Self {
        // The alternate form of an error prints its whole chain.
        Self::Failed { after: None, why: format!("{why:#}") }
    }
}

/// How a call ended: per entry, or as a whole, so that any entry may be the cause.
pub(super) enum CallOutcome {
    PerEntry(Vec<HandlerOutcome>),
    Failed(String),
}

pub(super) type CallFuture = Pin<Box<dyn Future<Output = CallOutcome> + Send>>;
type BoxedHandler = Arc<dyn Fn(Vec<Raw>) -> CallFuture + Send + Sync>;

/// A handler of any kind. An async closure that takes an [`Entry`] is converted to one.
#[derive(Clone)]
pub struct Handler {
    pub(super) call: BoxedHandler,
    /// Whether it takes several entries per call.
    pub(super) takes_batches: bool,
}

impl Handler {
    /// An async handler of one entry.
    pub fn each<T, H, F, V, E>(handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Entry<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        V: Into<Verdict>,
        E: Display,
    {
        let handler = Arc::new(handler);
        Self::per_entry(move |entry: Entry<T>| {
            let handler = handler.clone();
            // Called inside the future, so that a panic before the first await is caught, too.
            async move { outcome_of(handler(entry).await) }
        })
    }

    /// A handler of one entry that blocks; it runs on a blocking thread. It cannot be cancelled: one that exceeds the
    /// processing timeout counts as failed and runs on.
    pub fn blocking<T, H, V, E>(handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Entry<T>) -> Result<V, E> + Send + Sync + 'static,
        V: Into<Verdict>,
        E: Display,
    {
        let handler = Arc::new(handler);
        Self::per_entry(move |entry: Entry<T>| {
            let handler = handler.clone();
            async move { blocking(move || outcome_of(handler(entry))).await }
        })
    }

    fn per_entry<T, H, F>(handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Entry<T>) -> F + Send + Sync + 'static,
        F: Future<Output = HandlerOutcome> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let call = move |mut raws: Vec<Raw>| -> CallFuture {
            let handler = handler.clone();
            Box::pin(async move {
                let Some(raw) = raws.pop() else { return CallOutcome::PerEntry(Vec::new()) };
                CallOutcome::PerEntry(vec![match raw.decode::<T>() {
                    Ok(entry) => handler(entry).await,
                    Err((raw, why)) => HandlerOutcome::Undecodable(Box::new(raw), why),
                }])
            })
        };
        Self { call: Arc::new(call), takes_batches: false }
    }

    /// An async handler of up to [`batch`](crate::Settings::batch) entries. If it fails as a whole, each entry is
    /// handled alone before a failure counts for any.
    pub fn batch<T, H, F, V, E>(handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Vec<Entry<T>>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        V: Into<Verdicts>,
        E: Display,
    {
        let handler = Arc::new(handler);
        Self::per_batch(move |entries: Vec<Entry<T>>| {
            let handler = handler.clone();
            async move { verdicts_of(handler(entries).await) }
        })
    }

    /// A blocking handler of up to [`batch`](crate::Settings::batch) entries.
    pub fn blocking_batch<T, H, V, E>(handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Vec<Entry<T>>) -> Result<V, E> + Send + Sync + 'static,
        V: Into<Verdicts>,
        E: Display,
    {
        let handler = Arc::new(handler);
        Self::per_batch(move |entries: Vec<Entry<T>>| {
            let handler = handler.clone();
            async move { blocking(move || verdicts_of(handler(entries))).await }
        })
    }

    fn per_batch<T, H, F>(handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Vec<Entry<T>>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Verdicts, String>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let call = move |raws: Vec<Raw>| -> CallFuture {
            let handler = handler.clone();
            Box::pin(async move {
                let mut entries = Vec::with_capacity(raws.len());
                // Entries that do not decode to `T` never reach the handler; `None` marks those that do.
                let mut outcomes: Vec<Option<HandlerOutcome>> = Vec::with_capacity(raws.len());
                for raw in raws {
                    match raw.decode::<T>() {
                        Ok(entry) => {
                            entries.push(entry);
                            outcomes.push(None);
                        }
                        Err((raw, why)) => {
                            outcomes.push(Some(HandlerOutcome::Undecodable(Box::new(raw), why)))
                        }
                    }
                }
                if entries.is_empty() {
                    return CallOutcome::PerEntry(outcomes.into_iter().flatten().collect());
                }
                let mut verdicts = match handler(entries).await {
                    Ok(Verdicts::Done) => None,
                    Ok(Verdicts::Each(each)) => Some(each.into_iter()),
                    Err(why) => return CallOutcome::Failed(why),
                };
                let mut next = || match &mut verdicts {
                    None => HandlerOutcome::Done,
                    Some(each) => each.next().map_or_else(
                        || HandlerOutcome::failed("the handler gave no verdict"),
                        HandlerOutcome::from,
                    ),
                };
                CallOutcome::PerEntry(
                    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(&mut next)).collect(),
                )
            })
        };
        Self { call: Arc::new(call), takes_batches: true }
    }
}

fn outcome_of<V: Into<Verdict>, E: Display>(result: Result<V, E>) -> HandlerOutcome {
    match result {
        Ok(verdict) => verdict.into().into(),
        Err(why) => HandlerOutcome::failed(why),
    }
}

fn verdicts_of<V: Into<Verdicts>, E: Display>(result: Result<V, E>) -> Result<Verdicts, String> {
    result.map(Into::into).map_err(|why| format!("{why:#}"))
}

/// Runs `work` on a blocking thread, and resumes its panic here.
async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime outcomes, and with it this task.
            Err(_) => std::future::pending().await,
        },
    }
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handler").field("takes_batches", &self.takes_batches).finish_non_exhaustive()
    }
}

/// A [`Handler`], or an async closure or function that takes an [`Entry`].
pub trait IntoHandler<Kind> {
    /// Converts it.
    fn into_handler(self) -> Handler;
}

impl IntoHandler<()> for Handler {
    fn into_handler(self) -> Handler {
        self
    }
}

impl<T, H, F, V, E> IntoHandler<(T, F, V, E)> for H
where
    T: DeserializeOwned + Send + 'static,
    H: Fn(Entry<T>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<V, E>> + Send + 'static,
    V: Into<Verdict>,
    E: Display,
{
    fn into_handler(self) -> Handler {
        Handler::each(self)
    }
}
