//! Calls of the store that are finished although the caller is gone.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::runtime::Handle;

use crate::{Duly, Error, engine::EngineHandles};

impl Duly {
    /// Does work with the store, and finishes it if the caller is dropped midway: whoever waits, what the store answers is counted,
    /// published and hinted at.
    pub(crate) async fn finish<T, F>(&self, work: impl FnOnce(EngineHandles) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.store()?;
        // Not this `Duly`: dropping the last clone stops deliveries at once.
        FinishOnDrop::new(self.inner.lifecycle.runtime.clone(), work(self.inner.parts.clone())).await
    }
}

/// A future that goes on in the background when it is dropped midway.
struct FinishOnDrop<F>
where
    F: Future<Output: Send> + Send + 'static,
{
    runtime: Handle,
    work: Option<Pin<Box<F>>>,
}

impl<F: Future<Output: Send> + Send + 'static> FinishOnDrop<F> {
    fn new(runtime: Handle, work: F) -> Self {
        Self { runtime, work: Some(Box::pin(work)) }
    }
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
        if let Some(work) = self.work.take().filter(|_| !std::thread::panicking()) {
            drop(self.runtime.spawn(work));
        }
    }
}
