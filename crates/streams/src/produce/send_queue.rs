//! Queued sends: a task writes many with one call.

use std::{
    pin::Pin,
    sync::OnceLock,
    task::{Context, Poll},
};

use duly_core::MessageId;
use redis_link::Link;
use tokio::sync::{mpsc, oneshot};

use super::{AppendCommand, BATCH_MAX, write};
use crate::{EntryId, Error};

/// Queued sends at most.
const WAITING_MAX: usize = 10_000;

type SendResult = Result<EntryId, Error>;

/// A command, its topic, and the sender of its result.
type QueuedSend = (AppendCommand, String, oneshot::Sender<SendResult>);

/// The queue of sends. Its task starts with the first one.
#[derive(Default)]
pub(crate) struct SendQueue {
    sender: OnceLock<mpsc::Sender<QueuedSend>>,
}

impl SendQueue {
    pub(super) fn send(&self, topic: &str, append: AppendCommand, link: &Link) -> SendFuture {
        if self.sender.get().is_none() && tokio::runtime::Handle::try_current().is_err() {
            return SendFuture::failed(Error::NoRuntime);
        }
        let sender = self.sender.get_or_init(|| {
            let (sender, items) = mpsc::channel(WAITING_MAX);
            tokio::spawn(drain(items, link.clone()));
            sender
        });
        let (reply_tx, reply_rx) = oneshot::channel();
        let id = append.id.clone();
        match sender.try_send((append, topic.to_owned(), reply_tx)) {
            Ok(()) => SendFuture { result: Box::pin(reply(reply_rx, id)) },
            Err(mpsc::error::TrySendError::Full(item)) => {
                let sender = sender.clone();
                let later = async move {
                    sender.send(item).await.map_err(|_| Error::Closed)?;
                    reply(reply_rx, id).await
                };
                SendFuture { result: Box::pin(later) }
            }
            Err(mpsc::error::TrySendError::Closed(_)) => SendFuture::failed(Error::Closed),
        }
    }
}

async fn reply(reply_rx: oneshot::Receiver<SendResult>, id: MessageId) -> SendResult {
    // The runtime that wrote it has ended.
    let runtime_ended = || Error::unanswered("the runtime was shut down meanwhile").with_message_id(&id);
    reply_rx.await.unwrap_or_else(|_| Err(runtime_ended()))
}

/// Writes queued sends until all senders are dropped and the queue is empty.
async fn drain(mut items: mpsc::Receiver<QueuedSend>, mut link: Link) {
    let mut some = Vec::with_capacity(BATCH_MAX);
    while items.recv_many(&mut some, BATCH_MAX).await > 0 {
        for (appends, reply_tx) in by_slot(some.drain(..), &link) {
            for (reply_tx, result) in reply_tx.into_iter().zip(write(&mut link, &appends).await) {
                // The caller may have dropped the future.
                let _ = reply_tx.send(result);
            }
        }
    }
}

type Batch = (Vec<AppendCommand>, Vec<oneshot::Sender<SendResult>>);

/// Groups commands that may share a pipeline: on a Cluster those of one topic, otherwise all. The order within a topic stays.
fn by_slot(items: impl Iterator<Item = QueuedSend>, link: &Link) -> Vec<Batch> {
    let is_cluster = matches!(link, Link::Cluster(..));
    let mut all: Vec<(String, Batch)> = Vec::new();
    for (append, topic, reply_tx) in items {
        let at = all.iter().position(|(known, _)| !is_cluster || *known == topic).unwrap_or_else(|| {
            all.push((topic, Batch::default()));
            all.len() - 1
        });
        all[at].1.0.push(append);
        all[at].1.1.push(reply_tx);
    }
    all.into_iter().map(|(_, batch)| batch).collect()
}

/// A queued send: resolves to the id of the entry.
#[must_use = "only the result says whether it was sent"]
pub struct SendFuture {
    result: Pin<Box<dyn Future<Output = SendResult> + Send>>,
}

impl SendFuture {
    pub(super) fn failed(error: Error) -> Self {
        Self { result: Box::pin(std::future::ready(Err(error))) }
    }
}

impl Future for SendFuture {
    type Output = SendResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<SendResult> {
        self.result.as_mut().poll(context)
    }
}

impl std::fmt::Debug for SendFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SendFuture")
    }
}
