//! Handlers: functions that process the tasks of a queue.

use std::{future::Future, sync::Arc, time::Duration};

use duly_core::{ErrorCode, Invalid, Lane, RetryPolicy, Topic};
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::{
    Duly, Error, HandlerOptions, HandlerResult, Task, Verdict,
    engine::{Command, Worker},
    task::attempt_result_of,
};

/// A handler that runs, or was stopped and can be restarted.
#[derive(Clone)]
pub(crate) struct RegisteredHandler {
    worker: Worker,
    options: HandlerOptions,
    is_running: bool,
}

impl Duly {
    /// Builds a handler of a queue; it runs after [`start`](HandlerBuilder::start).
    ///
    /// The handler returns a [`Verdict`], `()` (done), or a `Result` of either. An error or a panic is a failure: the
    /// task is retried by its [retry policy](HandlerBuilder::retry). The lease is renewed while the handler runs.
    pub fn handle<F, R>(&self, queue: &str, handler: F) -> HandlerBuilder
    where
        F: Fn(Task) -> R + Send + Sync + 'static,
        R: Future<Output: HandlerResult> + Send + 'static,
    {
        let handler = move |task: Task| {
            let lease_lost = task.lease_lost_signal();
            let work = handler(task);
            Box::pin(async move { attempt_result_of(work.await, &lease_lost) }) as _
        };
        HandlerBuilder {
            duly: self.clone(),
            queue: queue.to_owned(),
            worker: Worker::Handler(Arc::new(handler)),
            options: self.inner.options.handlers.clone(),
        }
    }

    /// Builds a handler that gets the body of each task decoded as JSON. A body that does not decode is a dead letter
    /// at once, without a call.
    ///
    /// ```
    /// # async fn example(duly: duly::Duly) -> Result<(), duly::Error> {
    /// #[derive(serde::Deserialize)]
    /// struct Order { id: u64 }
    ///
    /// duly.handle_json("order", |order: Order, _task| async move { println!("order {} is due", order.id) }).start().await
    /// # }
    /// ```
    pub fn handle_json<T, F, R>(&self, queue: &str, handler: F) -> HandlerBuilder
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T, Task) -> R + Send + Sync + 'static,
        R: Future<Output: HandlerResult> + Send + 'static,
    {
        self.handle(queue, move |task: Task| {
            let work = task.json().map(|payload| handler(payload, task));
            async move {
                match work {
                    Ok(work) => work.await.verdict(),
                    Err(unreadable) => Ok(Verdict::give_up(unreadable.detail)),
                }
            }
        })
    }

    /// Handlers with shared state: each call gets a clone of it, such as an `Arc`.
    ///
    /// ```
    /// # use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
    /// # use duly::{Duly, Error, Task};
    /// # async fn example(duly: Duly) -> Result<(), Error> {
    /// let handled = Arc::new(AtomicU64::new(0));
    /// duly.with_state(handled)
    ///     .handle("order", |handled: Arc<AtomicU64>, _task: Task| async move {
    ///         handled.fetch_add(1, Ordering::Relaxed);
    ///     })
    ///     .start()
    ///     .await
    /// # }
    /// ```
    pub fn with_state<S: Clone + Send + Sync + 'static>(&self, state: S) -> WithState<S> {
        WithState { duly: self.clone(), state }
    }

    /// Stops the handler of a queue. Running calls may finish within the grace period; the tasks of those that do not
    /// are released without counting an attempt. [`start_handling`](Self::start_handling) starts it again.
    ///
    /// **Called in a handler** of this Duly, of whichever queue, it starts the stop and returns at once, as the stop may wait for that
    /// handler. Cancel safety: dropped midway, it goes on.
    pub async fn stop_handling(&self, queue: &str) -> Result<(), Error> {
        self.check_open()?;
        let topic = Topic::parse(queue)?;
        match self.handlers().get_mut(&topic) {
            Some(registered) if registered.is_running => registered.is_running = false,
            _ => return Err(Error::NoHandler(topic)),
        }
        self.check_alive()?;
        let (stopped_tx, waiting) = oneshot::channel();
        let grace_end = self.grace_end();
        let _ = self
            .inner
            .parts
            .inputs
            .send(Command::StopLane { lane: Lane::Queue(topic), grace_end, stopped_tx }.into());
        self.wait_stopped_outside_handler(grace_end, waiting).await;
        Ok(())
    }

    /// Starts the handler of a queue again that [`stop_handling`](Self::stop_handling) has stopped.
    ///
    /// Cancel safety: dropped midway, no handler was started.
    pub async fn start_handling(&self, queue: &str) -> Result<(), Error> {
        self.check_open()?;
        let topic = Topic::parse(queue)?;
        let Some(RegisteredHandler { worker, options, is_running }) = self.handlers().get(&topic).cloned()
        else {
            return Err(Error::NoHandler(topic));
        };
        if is_running {
            return Err(Error::HandlerExists(topic));
        }
        HandlerBuilder { duly: self.clone(), queue: queue.to_owned(), worker, options }.start().await
    }

    /// Whether a handler of this process runs for a queue.
    pub fn is_handling(&self, queue: &str) -> bool {
        let is_running = |topic| self.handlers().get(&topic).is_some_and(|registered| registered.is_running);
        Topic::parse(queue).is_ok_and(is_running)
    }
}

/// Handlers with shared state; see [`Duly::with_state`].
#[derive(Debug, Clone)]
pub struct WithState<S> {
    duly: Duly,
    state: S,
}

impl<S: Clone + Send + Sync + 'static> WithState<S> {
    /// Like [`Duly::handle`], with the state as the first argument.
    pub fn handle<F, R>(&self, queue: &str, handler: F) -> HandlerBuilder
    where
        F: Fn(S, Task) -> R + Send + Sync + 'static,
        R: Future<Output: HandlerResult> + Send + 'static,
    {
        let state = self.state.clone();
        self.duly.handle(queue, move |task| handler(state.clone(), task))
    }

    /// Like [`Duly::handle_json`], with the state as the first argument.
    pub fn handle_json<T, F, R>(&self, queue: &str, handler: F) -> HandlerBuilder
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(S, T, Task) -> R + Send + Sync + 'static,
        R: Future<Output: HandlerResult> + Send + 'static,
    {
        let state = self.state.clone();
        self.duly.handle_json(queue, move |payload, task| handler(state.clone(), payload, task))
    }
}

/// A handler before it is started.
#[must_use = "a handler does nothing until it is started"]
pub struct HandlerBuilder {
    duly: Duly,
    queue: String,
    worker: Worker,
    options: HandlerOptions,
}

impl HandlerBuilder {
    /// Sets how many tasks are handled at the same time.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.options.concurrency = tasks;
        self
    }

    /// Sets how many tasks are claimed at once.
    pub fn batch(mut self, tasks: usize) -> Self {
        self.options.batch = tasks;
        self
    }

    /// Sets how long one task may take. A longer call counts as failed.
    pub fn timeout(mut self, span: Duration) -> Self {
        self.options.timeout = span;
        self
    }

    /// Sets the retry policy of tasks that have none of their own.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.options = self.options.retry(policy);
        self
    }

    /// Sets the first wait after a retry verdict.
    pub fn again(mut self, wait: Duration) -> Self {
        self.options.again = wait;
        self.options.max = self.options.max.max(wait);
        self
    }

    /// Sets the first wait after a failure or panic.
    pub fn failed(mut self, wait: Duration) -> Self {
        self.options.failed = wait;
        self.options.max = self.options.max.max(wait);
        self
    }

    /// Sets the number of attempts; then the task is a dead letter.
    pub fn attempts(mut self, tries: u32) -> Self {
        self.options.attempts = tries;
        self
    }

    /// Starts the handler. One handler per queue and process.
    ///
    /// Cancel safety: dropped midway, no handler was started.
    pub async fn start(self) -> Result<(), Error> {
        let inner = &self.duly.inner;
        self.duly.check_open()?;
        if !inner.options.deliver {
            let detail = "this Duly only accepts; handle the queue in a process that delivers";
            return Err(Invalid::new(ErrorCode::DeliveryDisabled, "deliver", detail).into());
        }
        self.options.check()?;
        let topic = Topic::parse(&self.queue)?;
        let lane = Lane::Queue(topic.clone());
        let lanes = self.duly.store()?.lanes(inner.parts.clock.now()).await?;
        let paused = lanes.iter().any(|status| status.paused && status.lane == lane);
        let (worker, options) = (self.worker.clone(), self.options.clone());
        {
            let mut handlers = self.duly.handlers();
            if handlers.get(&topic).is_some_and(|registered| registered.is_running) {
                return Err(Error::HandlerExists(topic));
            }
            handlers.insert(topic, RegisteredHandler { worker, options, is_running: true });
        }
        let settings = self.options.lane(inner.options.lease);
        let command = Command::AddLane { lane, settings, worker: self.worker, paused };
        inner.parts.inputs.send(command.into()).map_err(|_| Error::Closed)?;
        // A shutdown before this did not start the lane.
        self.duly.check_open()
    }
}
