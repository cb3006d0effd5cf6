//! Whether a queue that a message came back from is not there, or away with its node: a classic queue has one, and the broker
//! says `NO_ROUTE` in both cases.

use std::collections::{HashMap, VecDeque};

use duly_core::SinkError;
use lapin::{
    options::QueueDeclareOptions,
    types::{FieldTable, ShortString},
};

use super::{connection::BrokerConnection, failure::is_no_such_queue, message::OutgoingMessage};

/// Queues of one call that the broker is asked for at the same time.
const ASKED_MAX: usize = 8;

/// A question to the broker.
pub(super) struct Question {
    pub(super) destination: u64,
    queue: ShortString,
    /// What the broker said when it gave the first message back.
    words: String,
}

/// The queues that messages of one call came back from.
#[derive(Default)]
pub(super) struct ReturnedQueues {
    known: HashMap<u64, ReturnedQueue>,
    waiting: VecDeque<Question>,
    asked: usize,
}

enum ReturnedQueue {
    /// The broker is asked; these wait for what it says.
    Asked(Vec<usize>),
    Answered(SinkError),
}

impl ReturnedQueues {
    /// Notes that a message came back. What that means for it, if the broker was asked for its queue before.
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

    /// The next question, if not too many are open.
    pub(super) fn next_question(&mut self) -> Option<Question> {
        if self.asked >= ASKED_MAX {
            return None;
        }
        let question = self.waiting.pop_front()?;
        self.asked += 1;
        Some(question)
    }

    /// Those that waited for this verdict.
    pub(super) fn answered(&mut self, destination: u64, verdict: SinkError) -> Vec<usize> {
        self.asked = self.asked.saturating_sub(1);
        match self.known.insert(destination, ReturnedQueue::Answered(verdict)) {
            Some(ReturnedQueue::Asked(positions)) => positions,
            _ => Vec::new(),
        }
    }
}

/// What it means that messages to this queue came back. They were not taken, whatever the answer is.
pub(super) async fn ask(connection: &BrokerConnection, question: &Question) -> SinkError {
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let Some(_permit) = connection.question().await else {
        return SinkError::unreachable(question.words.as_str()).at_destination();
    };
    let channel = match connection.plain_channel().await {
        Ok(channel) => channel,
        // The broker may allow no more channels: that is nobody else's matter.
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
