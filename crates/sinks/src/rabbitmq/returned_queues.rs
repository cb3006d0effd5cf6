//! Tells a missing queue from one whose node is down, after `NO_ROUTE`: a classic queue is on one node, and the broker answers the same in
//! both cases.

use std::collections::{HashMap, VecDeque};

use duly_core::SinkError;
use lapin::{
    options::QueueDeclareOptions,
    types::{FieldTable, ShortString},
};

use super::{connection::BrokerConnection, failure::is_no_such_queue, message::OutgoingMessage};

/// Maximum of queues that are queried at the same time in one call.
const ASKED_MAX: usize = 8;

/// A query for one queue.
pub(super) struct Question {
    pub(super) destination: u64,
    queue: ShortString,
    /// The reason with which the broker returned the first message.
    words: String,
}

/// The queues whose messages were returned in one call.
#[derive(Default)]
pub(super) struct ReturnedQueues {
    known: HashMap<u64, ReturnedQueue>,
    waiting: VecDeque<Question>,
    asked: usize,
}

enum ReturnedQueue {
    /// Queried; these messages wait for the answer.
    Asked(Vec<usize>),
    Answered(SinkError),
}

impl ReturnedQueues {
    /// Records a returned message. Returns its error if its queue was queried before.
    pub(super) fn returned(
        &mut self,
        position: usize,
        message: &OutgoingMessage,
        words: String,
    ) -> Option<SinkError> {
        let destination = message.destination;
        match self.known.get_mut(&destination) {
            Some(ReturnedQueue::Answered(verdict)) => return Some(verdict.clone()),
            Some(ReturnedQueue::Asked(positions)) => positions.push(position),
            None => {
                self.known.insert(destination, ReturnedQueue::Asked(vec![position]));
                self.waiting.push_back(Question { destination, queue: message.key.clone(), words });
            }
        }
        None
    }

    /// The next query, if not too many are open.
    pub(super) fn next_question(&mut self) -> Option<Question> {
        if self.asked >= ASKED_MAX {
            return None;
        }
        let question = self.waiting.pop_front()?;
        self.asked += 1;
        Some(question)
    }

    /// Records an answer. Returns the messages that wait for it.
    pub(super) fn answered(&mut self, destination: u64, verdict: SinkError) -> Vec<usize> {
        self.asked = self.asked.saturating_sub(1);
        match self.known.insert(destination, ReturnedQueue::Answered(verdict)) {
            Some(ReturnedQueue::Asked(positions)) => positions,
            _ => Vec::new(),
        }
    }
}

/// Queries the queue, and returns the error of its messages. None of them was enqueued.
pub(super) async fn ask(connection: &BrokerConnection, question: &Question) -> SinkError {
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let Some(_permit) = connection.question().await else {
        return SinkError::unreachable(question.words.as_str()).at_destination();
    };
    let channel = match connection.plain_channel().await {
        Ok(channel) => channel,
        // The limit of channels concerns this destination only.
        Err(error) if connection.is_connected() => {
            return SinkError::unreachable(error.to_string()).at_destination();
        }
        Err(error) => return SinkError::unreachable(error.to_string()),
    };
    match channel.queue_declare(question.queue.clone(), passive, FieldTable::default()).await {
        Ok(_) => SinkError::unreachable(format!("{}; it is there by now", question.words)).at_destination(),
        Err(error) if is_no_such_queue(&error) => SinkError::denied(question.words.as_str()),
        Err(error) if !connection.is_connected() => SinkError::unreachable(error.to_string()),
        Err(error) => SinkError::unreachable(format!("its queue is away: {error}")).at_destination(),
    }
}
