//! The messages of one call to a server that answers only PING.

use std::{collections::VecDeque, io};

use bytes::BytesMut;
use duly_core::{Outcomes, SinkError};

use super::{
    super::publish::OutgoingMessage,
    protocol::{self, Line, PING, PONG},
};
use crate::exchange::Exchange;

/// The receipt of a message that the server has read.
const HANDED_OVER: &str = "handed to the server; at most once";
/// Maximum of messages that one PING covers.
const PINGED_MAX: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Sent,
    Done,
}

/// The messages of a call. The server handles all that a client sends in order: a PONG says that it has read every message
/// before the PING, and that it had nothing against any of them that it did not name.
pub(super) struct Batch<'a> {
    messages: &'a [(usize, OutgoingMessage)],
    stages: Vec<Stage>,
    outcomes: &'a Outcomes<'a>,
    payload_max: usize,
    next: usize,
    /// Where each PING without a PONG stands: how many messages were sent before it.
    pings: VecDeque<usize>,
    pinged: usize,
    read: usize,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        messages: &'a [(usize, OutgoingMessage)],
        outcomes: &'a Outcomes<'a>,
        payload_max: usize,
    ) -> Self {
        let stages = vec![Stage::Waiting; messages.len()];
        Self { messages, stages, outcomes, payload_max, next: 0, pings: VecDeque::new(), pinged: 0, read: 0 }
    }

    fn end(&mut self, position: usize, outcome: duly_core::DeliveryResult) {
        if self.stages[position] != Stage::Done {
            self.stages[position] = Stage::Done;
            self.outcomes.report(self.messages[position].0, outcome);
        }
    }

    /// A denial of a subject concerns all messages to it.
    fn denied(&mut self, subject: &str, words: &str) {
        for position in self.read..self.next {
            if self.messages[position].1.subject == subject {
                self.end(position, Err(SinkError::denied(words)));
            }
        }
    }

    fn pong(&mut self) {
        let Some(until) = self.pings.pop_front() else { return };
        for position in self.read..until {
            self.end(position, Ok(HANDED_OVER.to_owned()));
        }
        self.read = until;
    }

    /// Ends the batch: no more answers will arrive.
    pub(super) fn give_up(mut self, why: &str) {
        for position in 0..self.messages.len() {
            match self.stages[position] {
                Stage::Waiting => self.end(position, Err(SinkError::unreachable(format!("not sent: {why}")))),
                Stage::Sent => {
                    let detail = format!("the server did not say that it has read it: {why}");
                    self.end(position, Err(SinkError::unknown(detail)));
                }
                Stage::Done => {}
            }
        }
    }
}

impl Exchange for Batch<'_> {
    fn poll_write(&mut self, out: &mut BytesMut) {
        let before = out.len();
        // A message that is too large adds nothing: continue with the next.
        while out.len() == before && self.next < self.messages.len() {
            let position = self.next;
            let message = &self.messages[position].1;
            self.next += 1;
            let headers = protocol::headers(&message.headers);
            let length = headers.len() + message.body.len();
            if length > self.payload_max {
                let max = self.payload_max;
                let detail = format!("it has {length} bytes with its headers, and the server takes {max}");
                self.end(position, Err(SinkError::refused(detail)));
                continue;
            }
            self.stages[position] = Stage::Sent;
            protocol::publish(out, &message.subject, &headers, &message.body);
        }
        let is_last = self.next == self.messages.len();
        if self.next > self.pinged && (is_last || self.next - self.pinged >= PINGED_MAX) {
            self.pinged = self.next;
            self.pings.push_back(self.next);
            out.extend_from_slice(PING);
        }
    }

    fn on_read(&mut self, read: &mut BytesMut, out: &mut BytesMut) -> io::Result<()> {
        while let Some(line) = protocol::next(read)? {
            match line {
                Line::Ping => out.extend_from_slice(PONG),
                Line::Pong => self.pong(),
                Line::Error(words) => match protocol::denied(&words) {
                    Some(subject) => self.denied(&subject, &words),
                    // It concerns the connection, which ends by it, or is unknown.
                    None => return Err(io::Error::other(words)),
                },
                Line::Other => {}
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.next == self.messages.len() && self.pings.is_empty()
    }
}
