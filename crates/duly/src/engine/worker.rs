//! The worker of a lane: a sink or a handler.

use std::{any::Any, borrow::Cow, future::Future, panic::AssertUnwindSafe, pin::Pin, sync::Arc, task::Poll};

use duly_core::{InStoreDelivery, Sink, StoredMessage, schedule::AttemptResult};

use super::EngineHandles;
use crate::Task;

pub(crate) type HandlerFn = dyn Fn(Task) -> Pin<Box<dyn Future<Output = AttemptResult> + Send>> + Send + Sync;

/// The worker of a lane: a sink or a handler.
#[derive(Clone)]
pub(crate) enum Worker {
    /// A sink, and the in-store delivery to it.
    Sink(Arc<dyn Sink>, Option<Arc<dyn InStoreDelivery>>),
    Handler(Arc<HandlerFn>),
}

tokio::task_local! {
    /// In a handler's task: the Duly of the handler.
    static HANDLER_OF: usize;
}

/// Runs the future of a handler so that [`is_in_handler`] recognises it.
pub(super) async fn run_as_handler<T>(parts: usize, work: impl Future<Output = T>) -> T {
    HANDLER_OF.scope(parts, work).await
}

/// Whether this is called in a handler of the same Duly. A task that the handler spawned is not recognised.
pub(crate) fn is_in_handler(parts: &EngineHandles) -> bool {
    HANDLER_OF.try_with(|of| *of == parts.identity()).unwrap_or(false)
}

/// Runs a future; a panic becomes an `Err` with its message.
pub(crate) async fn catch_panic<T>(work: impl Future<Output = T> + Send) -> Result<T, String> {
    let mut work = Box::pin(work);
    std::future::poll_fn(move |context| {
        // The future is dropped after a panic and never polled again.
        match std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => Poll::Ready(Err(panic_message(panic.as_ref()))),
        }
    })
    .await
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("without a word"))
}

/// The destination of a message. If the sink panics, it is the topic: the driver must not end.
pub(super) fn destination_of<'a>(sink: &dyn Sink, message: &'a StoredMessage) -> Cow<'a, str> {
    let asked = std::panic::catch_unwind(AssertUnwindSafe(|| sink.destination(message)));
    asked.unwrap_or_else(|panic| {
        tracing::error!(id = %message.id, panic = panic_message(panic.as_ref()), "sink panicked while naming a destination");
        Cow::Borrowed(message.topic.as_str())
    })
}
