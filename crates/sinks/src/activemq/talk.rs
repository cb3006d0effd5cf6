//! What is said to a broker, and how its answers find their messages.

use std::io;

use bytes::{Bytes, BytesMut};
use duly_core::{Delivery, SinkError};

use super::{
    config::ActivemqDestination,
    failure::{no_answer, no_connection, not_taken, words},
    frame::{self, Frame},
    message,
};
use crate::wires::Talk;

pub(super) type Outcome = Result<String, SinkError>;

/// One thing said; the first frame that comes is the answer.
pub(super) struct Ask {
    say: Bytes,
    pub(super) answer: Option<Frame>,
}

impl Ask {
    pub(super) fn new(say: BytesMut) -> Self {
        Self { say: say.freeze(), answer: None }
    }
}

impl Talk for Ask {
    fn say(&mut self, out: &mut BytesMut) {
        out.extend_from_slice(&std::mem::take(&mut self.say));
    }

    fn hear(&mut self, read: &mut BytesMut, _: &mut BytesMut) -> io::Result<()> {
        if self.answer.is_none() {
            self.answer = frame::next(read)?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.answer.is_some()
    }
}

#[derive(Clone)]
enum Stage {
    Waiting,
    Sent,
    Done(Outcome),
}

/// The messages of a call.
pub(super) struct Batch<'a> {
    deliveries: &'a [&'a Delivery],
    stages: Vec<Stage>,
    to: ActivemqDestination,
    /// The number of the first receipt.
    first: u64,
    session: &'a str,
    /// As many may wait for their receipts.
    window: usize,
    next: usize,
    under_way: usize,
    done: usize,
    /// What the broker says about none in particular.
    stray: Option<String>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        deliveries: &'a [&'a Delivery],
        to: ActivemqDestination,
        (session, first): (&'a str, u64),
        window: usize,
    ) -> Self {
        let stages = vec![Stage::Waiting; deliveries.len()];
        Self { deliveries, stages, to, first, session, window, next: 0, under_way: 0, done: 0, stray: None }
    }

    /// Whether the broker complained of one of several, and did not say which.
    pub(super) fn has_a_culprit(&self) -> bool {
        self.stray.is_some() && self.under_way > 1
    }

    fn place(&self, frame: &Frame) -> Option<usize> {
        let number: u64 = frame.header("receipt-id")?.parse().ok()?;
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        matches!(self.stages.get(place), Some(Stage::Sent)).then_some(place)
    }

    fn end(&mut self, place: usize, outcome: Outcome) {
        self.stages[place] = Stage::Done(outcome);
        self.under_way -= 1;
        self.done += 1;
    }

    /// What became of each, in order. `why` is why no more was heard.
    pub(super) fn outcomes(self, why: &str) -> Vec<Outcome> {
        let missing = match &self.stray {
            // It can only be about the one that was under way.
            Some(words) if self.under_way == 1 => not_taken(words.clone()),
            Some(words) => no_answer(format!("{words} (it is not said of which message)")),
            None => no_answer(why),
        };
        let each = self.stages.into_iter().map(|stage| match stage {
            Stage::Done(outcome) => outcome,
            Stage::Waiting => Err(no_connection(format!("not sent: {why}"))),
            Stage::Sent => Err(missing.clone()),
        });
        each.collect()
    }
}

impl Talk for Batch<'_> {
    fn say(&mut self, out: &mut BytesMut) {
        if self.under_way < self.window
            && let Some(delivery) = self.deliveries.get(self.next)
        {
            message::send(out, delivery, self.to, self.first + self.next as u64);
            self.stages[self.next] = Stage::Sent;
            self.next += 1;
            self.under_way += 1;
        }
    }

    fn hear(&mut self, read: &mut BytesMut, _: &mut BytesMut) -> io::Result<()> {
        while let Some(frame) = frame::next(read)? {
            match (frame.command.as_str(), self.place(&frame)) {
                ("RECEIPT", Some(place)) => {
                    let receipt = format!("{} receipt {}", self.session, self.first + place as u64);
                    self.end(place, Ok(receipt));
                }
                ("ERROR", Some(place)) => self.end(place, Err(not_taken(words(&frame)))),
                ("ERROR", None) => {
                    // It no longer knows where it is in what we send, and would take bodies for commands: away from here.
                    let words = words(&frame);
                    self.stray = Some(words.clone());
                    return Err(io::Error::other(words));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.done == self.deliveries.len()
    }
}
