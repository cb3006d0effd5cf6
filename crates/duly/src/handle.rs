//! Handlers: functions of yours that take the tasks of a queue.

use std::{future::Future, sync::Arc, time::Duration};

use duly_core::{Invalid, Lane, Topic};
use tokio::sync::oneshot;

use crate::{
    Answer, Duly, Error, HandlerOptions, Task,
    engine::{Note, Worker},
    task::end_of,
};

impl Duly {
    /// Sets a handler for a queue; it runs once [`start`](Handling::start) is called.
    ///
    /// The handler answers [`Handled::Done`](crate::Handled::Done) or [`Handled::Again`](crate::Handled::Again), or an
    /// error. A panic is an error too. While it runs, its lease is renewed.
    pub fn handle<F, R>(&self, queue: &str, handler: F) -> Handling
    where
        F: Fn(Task) -> R + Send + Sync + 'static,
        R: Future<Output: Answer> + Send + 'static,
    {
        let handler = move |task| {
            let work = handler(task);
            Box::pin(async move { end_of(work.await) }) as _
        };
        Handling {
            duly: self.clone(),
            queue: queue.to_owned(),
            worker: Worker::Handler(Arc::new(handler)),
            options: self.inner.handlers.clone(),
        }
    }

    /// Stops handling a queue. Running handlers may finish within the time of grace; the tasks of those that do not
    /// are handed back without counting a try.
    pub async fn stop_handling(&self, queue: &str) -> Result<(), Error> {
        let topic = Topic::parse(queue)?;
        if !self.handling().remove(&topic) {
            return Err(Error::NotHandling(topic));
        }
        self.check_alive()?;
        let (gone, waiting) = oneshot::channel();
        let grace_end = self.grace_end();
        let _ = self.inner.parts.notes.send(Note::StopLane { lane: Lane::Queue(topic), grace_end, gone });
        self.bounded(grace_end, waiting).await;
        Ok(())
    }

    /// Whether a handler of this process takes the tasks of a queue.
    pub fn is_handling(&self, queue: &str) -> bool {
        Topic::parse(queue).is_ok_and(|topic| self.handling().contains(&topic))
    }
}

/// A handler about to start.
#[must_use = "a handler does nothing until it is started"]
pub struct Handling {
    duly: Duly,
    queue: String,
    worker: Worker,
    options: HandlerOptions,
}

impl Handling {
    /// Tasks handled at the same time.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.options.concurrency = tasks;
        self
    }

    /// Tasks taken from the store at once.
    pub fn batch(mut self, tasks: usize) -> Self {
        self.options.batch = tasks;
        self
    }

    /// How long one task may take. Then it is given up as failed.
    pub fn timeout(mut self, span: Duration) -> Self {
        self.options.timeout = span;
        self
    }

    /// The wait after the handler said no.
    pub fn again(mut self, wait: Duration) -> Self {
        self.options.again = wait;
        self
    }

    /// The wait after the handler failed or panicked.
    pub fn failed(mut self, wait: Duration) -> Self {
        self.options.failed = wait;
        self
    }

    /// Total tries; then the task is a dead letter.
    pub fn attempts(mut self, tries: u32) -> Self {
        self.options.attempts = tries;
        self
    }

    /// Starts it. One handler per queue and process.
    pub async fn start(self) -> Result<(), Error> {
        let inner = &self.duly.inner;
        self.duly.check_open()?;
        if !inner.deliver {
            let detail = "this Duly only accepts; handle the queue in a process that delivers";
            return Err(Invalid::new("only_accepts", "deliver", detail).into());
        }
        self.options.check()?;
        let topic = Topic::parse(&self.queue)?;
        let lane = Lane::Queue(topic.clone());
        let lanes = self.duly.store()?.lanes(inner.parts.clock.now()).await?;
        let paused = lanes.iter().any(|status| status.paused && status.lane == lane);
        if !self.duly.handling().insert(topic.clone()) {
            return Err(Error::AlreadyHandling(topic));
        }
        let settings = self.options.lane(inner.lease, &inner.retry);
        let note = Note::AddLane { lane, settings, worker: self.worker, paused };
        inner.parts.notes.send(note).map_err(|_| Error::Closed)?;
        // A shutdown that came first leaves the lane out.
        self.duly.check_open()
    }
}
