//! One message: send, look, change.

use bytes::Bytes;
use serde_json::json;
use url::form_urlencoded::Serializer;

use crate::{
    Client, Error,
    lines::BatchResults,
    target::segment,
    wire::{Accepted, BatchResult, Cancelled, Message, Moment, NewMessage, Page, Reschedule, Rescheduled},
};

const BATCH: &str = "/v1/messages/batch";

/// Which messages a list shows. The default is all of them, from the first.
#[derive(Debug, Clone, Default)]
pub struct Query {
    /// Only these: `pending`, `in_flight`, `delivered`, `dead` or `cancelled`.
    pub state: Option<String>,
    /// Only those to this sink; `queue` is the built-in one.
    pub sink: Option<String>,
    /// Only those of this topic.
    pub topic: Option<String>,
    /// Due at or after.
    pub due_from: Option<Moment>,
    /// Due before.
    pub due_to: Option<Moment>,
    /// Where the page before ended: its `cursor`.
    pub cursor: Option<String>,
    /// At most so many on this page; the server's own limit if more.
    pub limit: Option<usize>,
}

impl Client {
    /// Sends a message. It is durable when this returns.
    ///
    /// Cancel safety: dropped midway, the message may be accepted or not: send it again with the same id.
    pub async fn send(&self, message: &NewMessage) -> Result<Accepted, Error> {
        self.post("/v1/messages", message).await
    }

    /// Sends many at once: one result per message, in their order. Each stands for itself. There are fewer results if the server ends
    /// the batch, and then the last one says why.
    ///
    /// Cancel safety: dropped midway, some of them may be accepted: send them again with the same ids.
    pub async fn send_batch(&self, messages: &[NewMessage]) -> Result<Vec<BatchResult>, Error> {
        let mut lines = Vec::new();
        for message in messages {
            message.append_line(&mut lines).map_err(|e| Error::Invalid(format!("cannot write JSON: {e}")))?;
        }
        self.send_lines(lines.into()).await?.collect(messages.len()).await
    }

    /// Sends messages that are JSON already, one a line; the answers come one by one.
    ///
    /// Cancel safety: dropped midway, some of them may be accepted: send them again with the same ids.
    pub async fn send_lines(&self, lines: Bytes) -> Result<BatchResults, Error> {
        Ok(BatchResults::new(self.post_lines(BATCH, lines).await?))
    }

    /// All that is known of a message. An unknown id is refused with [`NotFound`](crate::ErrorCode::NotFound).
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn get(&self, id: &str) -> Result<Message, Error> {
        self.read(&at(id, "")).await
    }

    /// A page of messages by due time, without their bodies.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn list(&self, query: &Query) -> Result<Page, Error> {
        self.read(&format!("/v1/messages?{}", query.encoded())).await
    }

    /// Cancels a message that is not delivered yet. Refused with [`TooLate`](crate::ErrorCode::TooLate) if it is under way or ended.
    ///
    /// Cancel safety: dropped midway, it may be done or not.
    pub async fn cancel(&self, id: &str) -> Result<Cancelled, Error> {
        self.delete(&at(id, "")).await
    }

    /// Gives a message another due time.
    ///
    /// Cancel safety: dropped midway, it may be done or not.
    pub async fn reschedule(&self, id: &str, when: &Reschedule) -> Result<Rescheduled, Error> {
        self.patch(&at(id, ""), when).await
    }

    /// Delivers a message now instead of later.
    ///
    /// Cancel safety: dropped midway, it may be done or not.
    pub async fn fire(&self, id: &str) -> Result<Rescheduled, Error> {
        self.post(&at(id, "/fire"), &json!({})).await
    }

    /// A page of dead letters. The state of `query` is not looked at.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn dead(&self, query: &Query) -> Result<Page, Error> {
        let query = Query { state: None, ..query.clone() };
        self.read(&format!("/v1/dead?{}", query.encoded())).await
    }
}

fn at(id: &str, verb: &str) -> String {
    format!("/v1/messages/{}{verb}", segment(id))
}

impl Query {
    fn encoded(&self) -> String {
        let pairs = [
            ("state", self.state.clone()),
            ("sink", self.sink.clone()),
            ("topic", self.topic.clone()),
            ("due_from", self.due_from.as_ref().map(Moment::to_string)),
            ("due_to", self.due_to.as_ref().map(Moment::to_string)),
            ("cursor", self.cursor.clone()),
            ("limit", self.limit.map(|limit| limit.to_string())),
        ];
        encoded(pairs)
    }
}

/// A query of a URL, of the pairs that have a value.
pub(crate) fn encoded<const N: usize>(pairs: [(&str, Option<String>); N]) -> String {
    let mut query = Serializer::new(String::new());
    for (name, value) in pairs {
        if let Some(value) = value {
            query.append_pair(name, &value);
        }
    }
    query.finish()
}
