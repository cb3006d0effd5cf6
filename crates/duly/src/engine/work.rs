//! Who takes the messages of a lane.

use std::{any::Any, borrow::Cow, future::Future, panic::AssertUnwindSafe, pin::Pin, sync::Arc, task::Poll};

use duly_core::{Message, Mover, Sink, schedule::End};

use crate::Task;

pub(crate) type Handle = dyn Fn(Task) -> Pin<Box<dyn Future<Output = End> + Send>> + Send + Sync;

/// Who takes the messages of a lane.
#[derive(Clone)]
pub(crate) enum Worker {
    /// A sink, and what takes messages there without it.
    Sink(Arc<dyn Sink>, Option<Arc<dyn Mover>>),
    Handler(Arc<Handle>),
}

/// Runs a future; a panic becomes an `Err` with its words.
pub(crate) async fn caught<T>(work: impl Future<Output = T> + Send) -> Result<T, String> {
    let mut work = Box::pin(work);
    std::future::poll_fn(move |context| {
        // The future is dropped after a panic and never looked at again.
        match std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => Poll::Ready(Err(words(panic.as_ref()))),
        }
    })
    .await
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("without a word"))
}

/// Where inside its target a message goes. A sink that panics over it must not end the driver: then it is the topic.
pub(super) fn destination_of<'a>(sink: &dyn Sink, message: &'a Message) -> Cow<'a, str> {
    let asked = std::panic::catch_unwind(AssertUnwindSafe(|| sink.destination(message)));
    asked.unwrap_or_else(|panic| {
        tracing::error!(id = %message.id, panic = words(panic.as_ref()), "sink panicked while naming a destination");
        Cow::Borrowed(message.topic.as_str())
    })
}
