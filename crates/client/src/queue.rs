//! The built-in queue: receive, and say what became of it.

use std::time::Duration;

use serde_json::json;

use crate::{
    Client, Error,
    messages::encoded,
    target::segment,
    wire::{
        Delay, Extend, Nack, QueuesAnswer, ReceiptResults, Receipts, Receive, ReceiveAny, Received,
        ReceivedMessage,
    },
};

impl Client {
    /// Takes what is due in the queue `topic`, waiting for it if `how` says so: nothing, if nothing came in time. Each message is the
    /// receiver's until its lease ends, and comes again unless it is acknowledged before.
    ///
    /// Cancel safety: dropped midway, messages may have been claimed; they come again when their leases end, if not before.
    pub async fn receive(&self, topic: &str, how: &Receive) -> Result<Vec<ReceivedMessage>, Error> {
        let wait = span(how.wait.as_ref());
        let received: Received = self.post_and_wait(&at(topic, "receive"), how, wait).await?;
        Ok(received.messages)
    }

    /// The same from several queues at once, none of which starves another.
    ///
    /// Cancel safety: dropped midway, messages may have been claimed; they come again when their leases end, if not before.
    pub async fn receive_any(&self, how: &ReceiveAny) -> Result<Vec<ReceivedMessage>, Error> {
        let wait = span(how.wait.as_ref());
        let received: Received = self.post_and_wait("/v1/receive", how, wait).await?;
        Ok(received.messages)
    }

    /// Acknowledges messages of the queue `topic` by their receipts: they are delivered. Says of each whether it was in time.
    ///
    /// Cancel safety: dropped midway, it may be done or not.
    pub async fn ack<R: Into<String>>(
        &self,
        topic: &str,
        receipts: impl IntoIterator<Item = R>,
    ) -> Result<ReceiptResults, Error> {
        self.post(&at(topic, "ack"), &listed(receipts)).await
    }

    /// The same for messages of any queues.
    ///
    /// Cancel safety: dropped midway, it may be done or not.
    pub async fn ack_any<R: Into<String>>(
        &self,
        receipts: impl IntoIterator<Item = R>,
    ) -> Result<ReceiptResults, Error> {
        self.post("/v1/ack", &listed(receipts)).await
    }

    /// Gives messages of the queue `topic` back: they come again, or become dead letters.
    ///
    /// Cancel safety: dropped midway, it may be done or not.
    pub async fn nack(&self, topic: &str, nack: &Nack) -> Result<ReceiptResults, Error> {
        self.post(&at(topic, "nack"), nack).await
    }

    /// The same for messages of any queues.
    ///
    /// Cancel safety: dropped midway, it may be done or not.
    pub async fn nack_any(&self, nack: &Nack) -> Result<ReceiptResults, Error> {
        self.post("/v1/nack", nack).await
    }

    /// Keeps messages of the queue `topic` for longer.
    ///
    /// Cancel safety: dropped midway, it may be done or not.
    pub async fn extend(&self, topic: &str, extend: &Extend) -> Result<ReceiptResults, Error> {
        self.post(&at(topic, "extend"), extend).await
    }

    /// The same for messages of any queues.
    ///
    /// Cancel safety: dropped midway, it may be done or not.
    pub async fn extend_any(&self, extend: &Extend) -> Result<ReceiptResults, Error> {
        self.post("/v1/extend", extend).await
    }

    /// A page of the topics of the built-in queue: the first, or the one behind `cursor`.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn queues(&self, cursor: Option<&str>) -> Result<QueuesAnswer, Error> {
        self.read(&format!("/v1/queues?{}", encoded([("cursor", cursor.map(str::to_owned))]))).await
    }

    /// Hands out nothing more of the queue `topic` until it is resumed.
    ///
    /// Cancel safety: dropped midway, it may be done or not.
    pub async fn pause_queue(&self, topic: &str) -> Result<(), Error> {
        self.post(&at(topic, "pause"), &json!({})).await
    }

    /// Hands out messages of the queue `topic` again.
    ///
    /// Cancel safety: dropped midway, it may be done or not.
    pub async fn resume_queue(&self, topic: &str) -> Result<(), Error> {
        self.post(&at(topic, "resume"), &json!({})).await
    }
}

fn at(topic: &str, verb: &str) -> String {
    format!("/v1/queues/{}/{verb}", segment(topic))
}

fn listed<R: Into<String>>(receipts: impl IntoIterator<Item = R>) -> Receipts {
    Receipts { receipts: receipts.into_iter().map(Into::into).collect() }
}

/// How long the server may take because it was asked to wait. What cannot be read is the server's to refuse.
fn span(wait: Option<&Delay>) -> Duration {
    wait.and_then(|wait| wait.span("wait").ok()).unwrap_or_default()
}
