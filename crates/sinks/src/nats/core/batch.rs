//! Messages of one call on their way to a server that acknowledges nothing but a PING.

use std::{collections::VecDeque, io};

use bytes::BytesMut;
use duly_core::Outcomes;

use super::wire::Exchange;
use super::{
    super::{
        failure::{denied, no_answer, no_connection, refused},
        publish::Parcel,
    },
    protocol::{self, Line, PING, PONG},
};

/// The receipt of a message that the server has read.
const HANDED_OVER: &str = "handed to the server; at most once";
/// Messages before a PING, at most: as many outcomes are known by one PONG.
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
    parcels: &'a [(usize, Parcel)],
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
        parcels: &'a [(usize, Parcel)],
        outcomes: &'a Outcomes<'a>,
        payload_max: usize,
    ) -> Self {
        let stages = vec![Stage::Waiting; parcels.len()];
        Self { parcels, stages, outcomes, payload_max, next: 0, pings: VecDeque::new(), pinged: 0, read: 0 }
    }

    fn end(&mut self, place: usize, outcome: duly_core::DeliveryResult) {
        if self.stages[place] != Stage::Done {
            self.stages[place] = Stage::Done;
            self.outcomes.report(self.parcels[place].0, outcome);
        }
    }

    /// Whoever may not publish to a subject may publish nothing to it.
    fn denied(&mut self, subject: &str, words: &str) {
        for place in self.read..self.next {
            if self.parcels[place].1.subject == subject {
                self.end(place, Err(denied(words)));
            }
        }
    }

    fn pong(&mut self) {
        let Some(until) = self.pings.pop_front() else { return };
        for place in self.read..until {
            self.end(place, Ok(HANDED_OVER.to_owned()));
        }
        self.read = until;
    }

    /// No more will be heard.
    pub(super) fn give_up(mut self, why: &str) {
        for place in 0..self.parcels.len() {
            match self.stages[place] {
                Stage::Waiting => self.end(place, Err(no_connection(format!("not sent: {why}")))),
                Stage::Sent => {
                    let detail = format!("the server did not say that it has read it: {why}");
                    self.end(place, Err(no_answer(detail)));
                }
                Stage::Done => {}
            }
        }
    }
}

impl Exchange for Batch<'_> {
    fn poll_write(&mut self, out: &mut BytesMut) {
        let before = out.len();
        // One that is too large adds nothing: the next one is looked at at once.
        while out.len() == before && self.next < self.parcels.len() {
            let place = self.next;
            let parcel = &self.parcels[place].1;
            self.next += 1;
            let headers = protocol::headers(&parcel.headers);
            let length = headers.len() + parcel.body.len();
            if length > self.payload_max {
                let max = self.payload_max;
                let detail = format!("it has {length} bytes with its headers, and the server takes {max}");
                self.end(place, Err(refused(detail)));
                continue;
            }
            self.stages[place] = Stage::Sent;
            protocol::publish(out, &parcel.subject, &headers, &parcel.body);
        }
        let is_last = self.next == self.parcels.len();
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
                    // About the connection, which ends by it, or about we do not know what.
                    None => return Err(io::Error::other(words)),
                },
                Line::Other => {}
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.next == self.parcels.len() && self.pings.is_empty()
    }
}
