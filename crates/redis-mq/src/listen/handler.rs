//! Handlers: of one entry or of many, that wait or that block.

use std::{fmt::Display, pin::Pin, sync::Arc, time::Duration};

use duly_core::Verdict;
use serde::de::DeserializeOwned;

use crate::{Entry, entry::Raw};

/// What a handler says of a batch: all of it is done, or a verdict for each, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdicts {
    /// All is done.
    Done,
    /// One for each, in the order of the batch. Those that are missing count as failed.
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

/// What became of an entry.
pub(super) enum Ended {
    Done,
    Failed { after: Option<Duration>, why: String },
    Dead(String),
    Undecodable(Box<Raw>, String),
}

impl From<Verdict> for Ended {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Done => Self::Done,
            Verdict::Retry { after, reason } => {
                Self::Failed { after, why: reason.unwrap_or_else(|| "the handler said: retry".into()) }
            }
            Verdict::GiveUp(why) => Self::Dead(why),
            other => Self::failed(format!("the handler said what is not known here: {other:?}")),
        }
    }
}

impl Ended {
    pub(super) fn failed(why: impl Display) -> Self {
        // The alternate form of an error that has a chain prints all of it.
        Self::Failed { after: None, why: format!("{why:#}") }
    }
}

/// How a whole call ended: each entry in its way, or all of them at once, so that nobody knows which was to blame.
pub(super) enum Called {
    Each(Vec<Ended>),
    Failed(String),
}

pub(super) type Calling = Pin<Box<dyn Future<Output = Called> + Send>>;
type Call = Arc<dyn Fn(Vec<Raw>) -> Calling + Send + Sync>;

/// A handler of whichever kind. An `async` closure that takes an [`Entry`] is one by itself.
#[derive(Clone)]
pub struct Handler {
    pub(super) call: Call,
    /// Whether it takes several at once.
    pub(super) takes_many: bool,
}

impl Handler {
    /// Takes one entry at a time, and is `async`.
    pub fn each<T, H, F, V, E>(handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Entry<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        V: Into<Verdict>,
        E: Display,
    {
        let handler = Arc::new(handler);
        Self::of_one(move |entry: Entry<T>| {
            let handler = handler.clone();
            // Within the future, so that a handler which panics at once is caught, too.
            async move { ended(handler(entry).await) }
        })
    }

    /// Takes one entry at a time, and blocks its thread; it runs on one where that is fine. Nobody can end it: one that takes too long
    /// counts as failed and runs on.
    pub fn blocking<T, H, V, E>(handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Entry<T>) -> Result<V, E> + Send + Sync + 'static,
        V: Into<Verdict>,
        E: Display,
    {
        let handler = Arc::new(handler);
        Self::of_one(move |entry: Entry<T>| {
            let handler = handler.clone();
            async move { blocking(move || ended(handler(entry))).await }
        })
    }

    fn of_one<T, H, F>(handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Entry<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Ended> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let call = move |mut raws: Vec<Raw>| -> Calling {
            let handler = handler.clone();
            Box::pin(async move {
                let Some(raw) = raws.pop() else { return Called::Each(Vec::new()) };
                Called::Each(vec![match raw.decode::<T>() {
                    Ok(entry) => handler(entry).await,
                    Err((raw, why)) => Ended::Undecodable(Box::new(raw), why),
                }])
            })
        };
        Self { call: Arc::new(call), takes_many: false }
    }

    /// Takes up to [`batch`](crate::Settings::batch) entries at once, and is `async`. If it fails as a whole, each entry is given to
    /// it alone before that counts as a failure of any.
    pub fn batch<T, H, F, V, E>(handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Vec<Entry<T>>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<V, E>> + Send + 'static,
        V: Into<Verdicts>,
        E: Display,
    {
        let handler = Arc::new(handler);
        Self::of_many(move |entries: Vec<Entry<T>>| {
            let handler = handler.clone();
            async move { told(handler(entries).await) }
        })
    }

    /// Takes up to [`batch`](crate::Settings::batch) entries at once, and blocks its thread.
    pub fn blocking_batch<T, H, V, E>(handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Vec<Entry<T>>) -> Result<V, E> + Send + Sync + 'static,
        V: Into<Verdicts>,
        E: Display,
    {
        let handler = Arc::new(handler);
        Self::of_many(move |entries: Vec<Entry<T>>| {
            let handler = handler.clone();
            async move { blocking(move || told(handler(entries))).await }
        })
    }

    fn of_many<T, H, F>(handler: H) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Vec<Entry<T>>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Verdicts, String>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let call = move |raws: Vec<Raw>| -> Calling {
            let handler = handler.clone();
            Box::pin(async move {
                let mut entries = Vec::with_capacity(raws.len());
                // Those that hold no `T` never reach the handler; for the others a place is kept.
                let mut ends: Vec<Option<Ended>> = Vec::with_capacity(raws.len());
                for raw in raws {
                    match raw.decode::<T>() {
                        Ok(entry) => {
                            entries.push(entry);
                            ends.push(None);
                        }
                        Err((raw, why)) => ends.push(Some(Ended::Undecodable(Box::new(raw), why))),
                    }
                }
                if entries.is_empty() {
                    return Called::Each(ends.into_iter().flatten().collect());
                }
                let mut verdicts = match handler(entries).await {
                    Ok(Verdicts::Done) => None,
                    Ok(Verdicts::Each(each)) => Some(each.into_iter()),
                    Err(why) => return Called::Failed(why),
                };
                let mut next = || match &mut verdicts {
                    None => Ended::Done,
                    Some(each) => {
                        each.next().map_or_else(|| Ended::failed("the handler gave no verdict"), Ended::from)
                    }
                };
                Called::Each(ends.into_iter().map(|end| end.unwrap_or_else(&mut next)).collect())
            })
        };
        Self { call: Arc::new(call), takes_many: true }
    }
}

fn ended<V: Into<Verdict>, E: Display>(result: Result<V, E>) -> Ended {
    match result {
        Ok(verdict) => verdict.into().into(),
        Err(why) => Ended::failed(why),
    }
}

fn told<V: Into<Verdicts>, E: Display>(result: Result<V, E>) -> Result<Verdicts, String> {
    result.map(Into::into).map_err(|why| format!("{why:#}"))
}

/// On a thread that may be blocked. A panic goes on here.
async fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime ends, and with it this task.
            Err(_) => std::future::pending().await,
        },
    }
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handler").field("takes_many", &self.takes_many).finish_non_exhaustive()
    }
}

/// What can be given where a handler is wanted: a [`Handler`], or an `async` closure or function that takes an [`Entry`].
pub trait IntoHandler<Kind> {
    /// The handler.
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
