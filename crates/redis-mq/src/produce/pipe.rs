//! Sends that do not wait: a task gathers them and writes many with one call.

use std::{
    pin::Pin,
    sync::OnceLock,
    task::{Context, Poll},
};

use duly_core::MessageId;
use redis_link::Link;
use tokio::sync::{mpsc, oneshot};

use super::{Append, TOGETHER, write};
use crate::{EntryId, Error};

/// How many may wait to be written.
const WAITING_MAX: usize = 10_000;

type Answer = Result<EntryId, Error>;

/// A command, the topic whose slot it goes to, and who waits for the answer.
type Item = (Append, String, oneshot::Sender<Answer>);

/// Where sends wait. Its task begins with the first of them.
#[derive(Default)]
pub(crate) struct Pipe {
    into: OnceLock<mpsc::Sender<Item>>,
}

impl Pipe {
    pub(super) fn send(&self, topic: &str, append: Append, link: &Link) -> Sending {
        if self.into.get().is_none() && tokio::runtime::Handle::try_current().is_err() {
            return Sending::failed(Error::NoRuntime);
        }
        let into = self.into.get_or_init(|| {
            let (into, items) = mpsc::channel(WAITING_MAX);
            tokio::spawn(drain(items, link.clone()));
            into
        });
        let (reply_tx, reply_rx) = oneshot::channel();
        let id = append.id.clone();
        match into.try_send((append, topic.to_owned(), reply_tx)) {
            Ok(()) => Sending { answer: Box::pin(reply(reply_rx, id)) },
            Err(mpsc::error::TrySendError::Full(item)) => {
                let into = into.clone();
                let later = async move {
                    into.send(item).await.map_err(|_| Error::Closed)?;
                    reply(reply_rx, id).await
                };
                Sending { answer: Box::pin(later) }
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Sending::failed(Error::Closed),
        }
    }
}

async fn reply(reply_rx: oneshot::Receiver<Answer>, id: MessageId) -> Answer {
    // The runtime that wrote it is gone.
    let gone = || Error::unanswered("the runtime was shut down meanwhile").of_message(&id);
    reply_rx.await.unwrap_or_else(|_| Err(gone()))
}

/// Ends when the last that could send is gone, and all of it is written.
async fn drain(mut items: mpsc::Receiver<Item>, mut link: Link) {
    let mut some = Vec::with_capacity(TOGETHER);
    while items.recv_many(&mut some, TOGETHER).await > 0 {
        for (appends, reply_tx) in by_slot(some.drain(..), &link) {
            for (reply_tx, answer) in reply_tx.into_iter().zip(write(&mut link, &appends).await) {
                // Whoever dropped it does not want to know.
                let _ = reply_tx.send(answer);
            }
        }
    }
}

type Together = (Vec<Append>, Vec<oneshot::Sender<Answer>>);

/// A cluster takes together what is of one slot; any other Redis takes all. The order within a topic stays.
fn by_slot(items: impl Iterator<Item = Item>, link: &Link) -> Vec<Together> {
    let is_cluster = matches!(link, Link::Cluster(..));
    let mut all: Vec<(String, Together)> = Vec::new();
    for (append, topic, reply_tx) in items {
        let at = all.iter().position(|(known, _)| !is_cluster || *known == topic).unwrap_or_else(|| {
            all.push((topic, Together::default()));
            all.len() - 1
        });
        all[at].1.0.push(append);
        all[at].1.1.push(reply_tx);
    }
    all.into_iter().map(|(_, together)| together).collect()
}

/// A send under way: resolves to the entry's id.
#[must_use = "only the answer says whether it was sent"]
pub struct Sending {
    answer: Pin<Box<dyn Future<Output = Answer> + Send>>,
}

impl Sending {
    pub(super) fn failed(error: Error) -> Self {
        Self { answer: Box::pin(std::future::ready(Err(error))) }
    }
}

impl Future for Sending {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        self.answer.as_mut().poll(context)
    }
}

impl std::fmt::Debug for Sending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sending")
    }
}
