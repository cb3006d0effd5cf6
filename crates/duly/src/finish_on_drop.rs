//! Calls of the store that are finished although the caller is gone.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::{runtime::Handle, sync::Semaphore};

use crate::{Duly, Error, engine::EngineHandles};

/// Bytes of calls that go on although their callers are gone. While a store hangs, clients that give up and come again would fill the
/// memory.
pub(crate) const ABANDONED_BYTES_MAX: usize = 64 << 20;
/// What a call counts for, besides its messages.
const CALL_BYTES: usize = 1 << 10;
/// What each id or receipt of a call counts for.
const ID_BYTES: usize = 256;

impl Duly {
    /// Does work with the store, and finishes it if the caller is dropped midway: whoever waits, what the store answers is counted,
    /// published and hinted at. `bytes` is about what the call keeps in memory.
    pub(crate) async fn finish<T, F>(
        &self,
        bytes: usize,
        work: impl FnOnce(EngineHandles) -> F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.store()?;
        let lifecycle = &self.inner.lifecycle;
        let work = FinishOnDrop {
            runtime: lifecycle.runtime.clone(),
            room: lifecycle.abandoned.clone(),
            bytes: bytes.saturating_add(CALL_BYTES),
            // Not this `Duly`: dropping the last clone stops deliveries at once.
            work: Some(Box::pin(work(self.inner.parts.clone()))),
        };
        work.await
    }

    /// The same for a call with so many ids or receipts.
    pub(crate) async fn finish_of<T, F>(
        &self,
        ids: usize,
        work: impl FnOnce(EngineHandles) -> F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.finish(ids.saturating_mul(ID_BYTES), work).await
    }
}

/// A future that goes on in the background when it is dropped midway, if there is room for it.
struct FinishOnDrop<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    runtime: Handle,
    room: Arc<Semaphore>,
    bytes: usize,
    work: Option<Pin<Box<F>>>,
}

impl<F: Future<Output: Send> + Send + 'static> Future for FinishOnDrop<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let output = ready!(work.as_mut().poll(cx));
        self.work = None;
        Poll::Ready(output)
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for FinishOnDrop<F> {
    fn drop(&mut self) {
        // Work that has panicked cannot go on.
        let Some(work) = self.work.take().filter(|_| !std::thread::panicking()) else { return };
        let bytes = u32::try_from(self.bytes).unwrap_or(u32::MAX);
        if let Ok(room) = self.room.clone().try_acquire_many_owned(bytes) {
            self.runtime.spawn(async move {
                work.await;
                drop(room);
            });
        }
    }
}
