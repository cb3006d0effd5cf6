//! Plain tasks: a queue, an id and a time.

use std::{borrow::Cow, time::Duration};

use duly_core::{
    MessageId, SinkName, State, Timestamp, Topic,
    store::{Changed, Query},
};

use crate::{Accepted, Duly, Error, Message, Receive, Received, queue};

impl Duly {
    /// Adds a task that is due at a [`Timestamp`] or a [`SystemTime`](std::time::SystemTime). A task id exists once per
    /// queue: adding it again changes nothing and is a duplicate.
    ///
    /// Cancel safety: dropped midway, it may have been added or not; add it again: what was added already is a duplicate.
    pub async fn add_task(&self, queue: &str, id: &str, at: impl Into<Timestamp>) -> Result<Accepted, Error> {
        self.send(task(queue, id)?.at(at)).await
    }

    /// Adds a task that is due after a delay.
    ///
    /// Cancel safety: dropped midway, it may have been added or not; add it again: what was added already is a duplicate, and the first
    /// time stands.
    pub async fn add_task_with_delay(
        &self,
        queue: &str,
        id: &str,
        delay: Duration,
    ) -> Result<Accepted, Error> {
        self.send(task(queue, id)?.after(delay)).await
    }

    /// Cancels a task before it is due.
    ///
    /// Cancel safety: dropped midway, it may have been done or not; ask again: what was done already answers [`Changed::TooLate`] with
    /// the state it is in.
    pub async fn cancel_task(&self, queue: &str, id: &str) -> Result<Changed, Error> {
        self.cancel(task_id(queue, id)?).await
    }

    /// Lists the ids of up to `max` tasks that are ready. Changes nothing.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
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
            // A due task that waits for a retry is not ready.
            let due = page.records.iter().filter(|record| record.ready <= now);
            ready.extend(due.map(|record| bare_id(&topic, &record.message.id).to_owned()));
            ready.truncate(max);
            match page.next {
                Some(next) if ready.len() < max => query.after = Some(next),
                _ => return Ok(ready),
            }
        }
    }

    /// Receives up to `max` ready tasks under a lease: acknowledge each with its receipt, or it comes back when its
    /// lease ends.
    ///
    /// Cancel safety: dropped midway, nothing is lost and no attempt counts: claimed tasks are released in the
    /// background.
    pub async fn poll_ready_tasks(&self, queue: &str, max: usize) -> Result<Vec<Received>, Error> {
        self.receive(queue, Receive { max, ..queue::Receive::default() }).await
    }
}

fn task(queue: &str, id: &str) -> Result<Message, Error> {
    Ok(Message::to_sink(SinkName::QUEUE, Topic::parse(queue)?.as_str()).id(task_id(queue, id)?.as_str()))
}

/// The message id of a task: the [prefix] of its queue, a colon, and its own id.
fn task_id(queue: &str, id: &str) -> Result<MessageId, Error> {
    Ok(MessageId::parse(&format!("{}:{id}", prefix(queue)))?)
}

/// The longest queue name that is written out; a longer one would leave no space for the task id.
const WRITTEN_MAX: usize = 64;

/// The name of a queue in task ids, one to one. Ids allow fewer characters than queues, and a colon ends the name:
/// `order` stays as it is, `a:b` is `:a.3Ab`, and a long one is `::` and a hash.
fn prefix(queue: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if queue.len() <= WRITTEN_MAX && queue.bytes().all(|byte| is_plain(byte) || byte == b'.') {
        return Cow::Borrowed(queue);
    }
    let mut written = String::from(":");
    for byte in queue.bytes() {
        if is_plain(byte) {
            written.push(char::from(byte));
        } else {
            written += &format!(".{byte:02X}");
        }
    }
    if written.len() > WRITTEN_MAX {
        // FNV-1a: the same in every version and on every machine.
        let hash = queue.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        written = format!("::{hash:016x}");
    }
    Cow::Owned(written)
}

/// The id that a task has within its queue.
pub(crate) fn bare_id<'a>(queue: &Topic, id: &'a MessageId) -> &'a str {
    let (id, queue) = (id.as_str(), queue.as_str());
    let own = |name: &str| id.strip_prefix(name).and_then(|rest| rest.strip_prefix(':'));
    // Earlier versions wrote every name as it is.
    own(&prefix(queue)).or_else(|| own(queue)).unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(queue: &str, id: &str) -> String {
        let made = task_id(queue, id).unwrap();
        assert_eq!(bare_id(&Topic::parse(queue).unwrap(), &made), id, "{queue}");
        made.as_str().to_owned()
    }

    #[test]
    fn a_task_has_an_id_of_its_own_whatever_its_queue_is_called() {
        assert_eq!(id("order", "42"), "order:42");
        assert_eq!(id("order.paid", "b:c"), "order.paid:b:c");
        assert_eq!((id("a", "b:c"), id("a:b", "c")), ("a:b:c".into(), ":a.3Ab:c".into()));
        assert_eq!(id("订单", "42"), ":.E8.AE.A2.E5.8D.95:42");
        assert_eq!(id("shop/order", "42"), ":shop.2Forder:42");
        let long = "订单".repeat(20);
        assert_ne!(id(&long, "42"), id(&format!("{long}/"), "42"));
        assert_eq!(id(&"x".repeat(100), &"y".repeat(100)).len(), 2 + 16 + 1 + 100);
    }

    #[test]
    fn names_that_look_alike_stay_apart() {
        let names = ["a", "a:b", "a.3Ab", "a/b", "a.2Fb", "a.b", "A/b"];
        let ids: std::collections::BTreeSet<_> = names.map(|queue| id(queue, "c")).into();
        assert_eq!(ids.len(), names.len());
    }

    #[test]
    fn an_id_of_an_earlier_version_is_read() {
        let old = MessageId::parse("a:b:c").unwrap();
        assert_eq!(bare_id(&Topic::parse("a:b").unwrap(), &old), "c");
    }
}
