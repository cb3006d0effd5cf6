//! One entry at a time: decoded, handled, and done or not.

use std::{any::Any, panic::AssertUnwindSafe, pin::Pin, sync::Arc, time::Duration};

use futures_util::FutureExt;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{Told, Undecodable, group::Group};
use crate::{Entry, Settings, entry::Raw};

/// The id of an entry that is done.
pub(super) type Done = String;

type Outcome = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;
pub(super) type Handler<T> = Arc<dyn Fn(Entry<T>) -> Outcome + Send + Sync>;

/// What is done with an entry, whatever its type.
#[derive(Clone)]
pub(super) struct Handling {
    handle: Arc<dyn Fn(Raw) -> Outcome + Send + Sync>,
    event: String,
    limit: Duration,
    done: mpsc::UnboundedSender<Done>,
}

impl Handling {
    pub(super) fn new<T: DeserializeOwned + Send + 'static>(
        group: &Group,
        settings: &Settings,
        handler: Handler<T>,
        undecodable: Option<Told>,
        done: mpsc::UnboundedSender<Done>,
    ) -> Self {
        let event = group.event.clone();
        let handle = {
            let event = event.clone();
            move |raw: Raw| -> Outcome {
                let (handler, told, event) = (handler.clone(), undecodable.clone(), event.clone());
                Box::pin(async move {
                    match raw.decode::<T>() {
                        Ok(entry) => handler(entry).await,
                        Err(why) => {
                            tell(told, Undecodable { event, id: raw.id.clone(), why, entry: raw });
                            Ok(())
                        }
                    }
                })
            }
        };
        Self { handle: Arc::new(handle), event, limit: settings.processing_timeout, done }
    }

    /// Handles an entry on a task of its own; `room` is given back when it is over.
    pub(super) fn begin(&self, raw: Raw, room: OwnedSemaphorePermit) {
        let this = self.clone();
        tokio::spawn(async move {
            let id = raw.id.clone();
            let work = AssertUnwindSafe((this.handle)(raw)).catch_unwind();
            let failed = match tokio::time::timeout(this.limit, work).await {
                Ok(Ok(Ok(()))) => {
                    // Nobody to tell: the listener is gone, and the entry comes again.
                    let _ = this.done.send(id.as_str().to_owned());
                    None
                }
                Ok(Ok(Err(why))) => Some(why),
                Ok(Err(panic)) => Some(format!("the handler panicked: {}", words(&*panic))),
                Err(_) => Some(format!("the handler took longer than {:?} and was ended", this.limit)),
            };
            if let Some(why) = failed {
                tracing::error!(event = this.event, %id, "an event was not handled and is tried again: {why}");
            }
            drop(room);
        });
    }
}

fn tell(told: Option<Told>, undecodable: Undecodable) {
    let Undecodable { event, id, why, .. } = &undecodable;
    tracing::error!(event, %id, "an entry is not what this listener listens for, it is passed over: {why}");
    if let Some(tell) = told {
        tell(&undecodable);
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it did not say why")
}
