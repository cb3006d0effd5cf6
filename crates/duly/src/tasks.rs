//! Tasks: a queue, an id and a time, and nothing else.

use std::time::Duration;

use duly_core::{
    MessageId, SinkName, State, Timestamp, Topic,
    store::{Changed, Query},
};

use crate::{Accepted, Duly, Error, Message, Receive, Received, queue, task::bare_id};

impl Duly {
    /// Adds a task that is due at a time. One task id once per queue: adding it again changes nothing and is a
    /// duplicate.
    pub async fn add_task(&self, queue: &str, id: &str, at: Timestamp) -> Result<Accepted, Error> {
        self.send(task(queue, id)?.at(at)).await
    }

    /// Adds a task that is due after a delay.
    pub async fn add_task_with_delay(
        &self,
        queue: &str,
        id: &str,
        delay: Duration,
    ) -> Result<Accepted, Error> {
        self.send(task(queue, id)?.after(delay)).await
    }

    /// Takes a task back before it is due.
    pub async fn cancel_task(&self, queue: &str, id: &str) -> Result<Changed, Error> {
        self.cancel(task_id(queue, id)?).await
    }

    /// Looks at the ids of up to `max` tasks that are due and wait to be taken. Changes nothing.
    pub async fn ready_tasks(&self, queue: &str, max: usize) -> Result<Vec<String>, Error> {
        let topic = Topic::parse(queue)?;
        let now = self.now();
        let mut query = Query {
            sink: Some(SinkName::queue()),
            topic: Some(topic.clone()),
            due_to: Some(Timestamp::from_millis(now.as_millis() + 1)),
            limit: max,
            ..Query::all(State::Pending)
        };
        let mut ready = Vec::new();
        loop {
            let page = self.list(&query).await?;
            // Due, but waiting for its next try, is not ready.
            let due = page.records.iter().filter(|record| record.ready <= now);
            ready.extend(due.map(|record| bare_id(&topic, &record.message.id).to_owned()));
            ready.truncate(max);
            match page.next {
                Some(next) if ready.len() < max => query.after = Some(next),
                _ => return Ok(ready),
            }
        }
    }

    /// Takes up to `max` tasks that are due, leased: each is to be acknowledged with its receipt, or comes again when
    /// its lease ends.
    pub async fn poll_ready_tasks(&self, queue: &str, max: usize) -> Result<Vec<Received>, Error> {
        self.receive(queue, Receive { max, ..queue::Receive::default() }).await
    }
}

fn task(queue: &str, id: &str) -> Result<Message, Error> {
    Ok(Message::to_sink(SinkName::QUEUE, Topic::parse(queue)?.as_str()).id(task_id(queue, id)?.as_str()))
}

/// A task's id within Duly: `<queue>:<id>`.
fn task_id(queue: &str, id: &str) -> Result<MessageId, Error> {
    Ok(MessageId::parse(&format!("{queue}:{id}"))?)
}
