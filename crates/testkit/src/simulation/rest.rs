//! Knowing when everybody waits: the moment at which virtual time may move on.

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Waker},
};

use tokio::runtime::{Builder, Runtime};

/// Told by the runtime whenever it has nothing left to do.
#[derive(Debug, Default)]
pub(super) struct Rest {
    reached: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

/// A runtime of one thread, and how to hear that all its tasks wait.
pub(super) fn runtime() -> (Runtime, Arc<Rest>) {
    let rest = Arc::new(Rest::default());
    let traced = rest.clone();
    let runtime = Builder::new_current_thread().on_thread_park(move || traced.trace()).build().unwrap();
    (runtime, rest)
}

impl Rest {
    fn trace(&self) {
        self.reached.store(true, Ordering::Relaxed);
        if let Some(waiting) = self.waiting.lock().unwrap().take() {
            waiting.wake();
        }
    }

    /// Lets all tasks run until each of them waits for something.
    pub(super) async fn reached(&self) {
        self.reached.store(false, Ordering::Relaxed);
        poll_fn(|context| {
            if self.reached.swap(false, Ordering::Relaxed) {
                return Poll::Ready(());
            }
            *self.waiting.lock().unwrap() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
