//! What is said to a broker, and how its answers find their messages.

use std::io;

use bytes::{Bytes, BytesMut};
use duly_core::{Delivery, SinkError};

use super::{
    config::MqttVersion,
    failure::{NOBODY, is_failure, no_answer, not_taken, refused, said},
    message,
    packet::{self, Packet, Reason, Step, Welcome},
    settings::{Qos, Settings},
};
use crate::wires::Talk;

pub(super) type Outcome = Result<String, SinkError>;

/// One thing said; the first packet that comes is the answer.
pub(super) struct Ask {
    say: Bytes,
    version: MqttVersion,
    pub(super) answer: Option<Packet>,
}

impl Ask {
    pub(super) fn new(say: impl Into<Bytes>, version: MqttVersion) -> Self {
        Self { say: say.into(), version, answer: None }
    }
}

impl Talk for Ask {
    fn say(&mut self, out: &mut BytesMut) {
        out.extend_from_slice(&std::mem::take(&mut self.say));
    }

    fn hear(&mut self, read: &mut BytesMut, _: &mut BytesMut) -> io::Result<()> {
        if self.answer.is_none() {
            self.answer = packet::next(read, self.version)?;
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
    /// QoS 2: the broker has received it, and has not released it yet.
    Received,
    Done(Outcome),
}

/// The messages of a call. The number of a packet is the place of its message, from 1.
pub(super) struct Batch<'a> {
    deliveries: &'a [&'a Delivery],
    stages: Vec<Stage>,
    version: MqttVersion,
    qos: Qos,
    packet_max: usize,
    /// As many may wait for their acknowledgements.
    window: usize,
    next: usize,
    under_way: usize,
    done: usize,
    goodbye: Option<Reason>,
    /// Some brokers close a connection over what they refuse: after that it is used for nothing new.
    has_refusal: bool,
}

impl<'a> Batch<'a> {
    /// `deliveries` has no more than there are numbers for packets.
    pub(super) fn new(
        deliveries: &'a [&'a Delivery],
        settings: &Settings,
        welcome: &Welcome,
        window: usize,
    ) -> Self {
        Self {
            deliveries,
            stages: vec![Stage::Waiting; deliveries.len()],
            version: settings.version,
            qos: settings.qos,
            packet_max: welcome.packet_max,
            window: window.min(welcome.receive_max.into()),
            next: 0,
            under_way: 0,
            done: 0,
            goodbye: None,
            has_refusal: false,
        }
    }

    /// Whether the broker may have gone because of one of several. Some refuse a message and close the connection at once, and
    /// what they said is lost if more was on its way to them.
    pub(super) fn may_have_a_culprit(&self) -> bool {
        self.under_way > 1
    }

    /// Whether all are answered, and the connection can be trusted to last.
    pub(super) fn went_well(&self) -> bool {
        self.is_complete() && !self.has_refusal
    }

    pub(super) fn is_complete(&self) -> bool {
        self.done == self.deliveries.len()
    }

    /// One at a time, and the last one was refused: the rest had better go elsewhere.
    fn stops_here(&self) -> bool {
        self.has_refusal && self.window == 1 && self.under_way == 0
    }

    fn end(&mut self, place: usize, outcome: Outcome) {
        self.stages[place] = Stage::Done(outcome);
        self.under_way -= 1;
        self.done += 1;
    }

    fn answered(&mut self, step: Step, id: u16, reason: &Reason, out: &mut BytesMut) {
        let place = usize::from(id).wrapping_sub(1);
        let expected = match (self.stages.get(place), step) {
            (Some(Stage::Sent), Step::Taken) => self.qos == Qos::AtLeastOnce,
            (Some(Stage::Sent), Step::Received) => self.qos == Qos::ExactlyOnce,
            (Some(Stage::Received), Step::Complete) => true,
            _ => false,
        };
        if !expected {
            return;
        }
        if is_failure(reason) {
            self.has_refusal = true;
            self.end(place, Err(not_taken(reason)));
        } else if step == Step::Received {
            self.stages[place] = Stage::Received;
            packet::release(out, id);
        } else {
            let name = if step == Step::Taken { "PUBACK" } else { "PUBCOMP" };
            let nobody = if reason.code == NOBODY { ", no matching subscribers" } else { "" };
            self.end(place, Ok(format!("{name} {id}{nobody}")));
        }
    }

    /// What became of each that was sent, in order. `why` is why no more was heard.
    pub(super) fn outcomes(self, why: &str) -> Vec<Outcome> {
        let missing = match &self.goodbye {
            // It can only be about the one that was under way.
            Some(reason) if self.under_way == 1 => not_taken(reason),
            Some(reason) => no_answer(said(reason)),
            None => no_answer(why),
        };
        let each = self.stages.into_iter().take(self.next).map(|stage| match stage {
            Stage::Done(outcome) => outcome,
            Stage::Waiting | Stage::Sent => Err(missing.clone()),
            Stage::Received => Err(no_answer(format!("received and not released: {why}"))),
        });
        each.collect()
    }
}

impl Talk for Batch<'_> {
    fn say(&mut self, out: &mut BytesMut) {
        let before = out.len();
        // One that is too large for this broker adds nothing: the next one is looked at at once.
        while out.len() == before && self.under_way < self.window && !self.stops_here() {
            let Some(delivery) = self.deliveries.get(self.next) else { return };
            let place = self.next;
            self.next += 1;
            self.under_way += 1;
            let how = (self.version, self.qos);
            match message::publish(out, delivery, how, (place + 1) as u16, self.packet_max) {
                Ok(()) => self.stages[place] = Stage::Sent,
                Err(length) => {
                    let max = self.packet_max;
                    let detail = format!("a packet of {length} bytes, and this broker takes {max}");
                    self.end(place, Err(refused(detail)));
                }
            }
        }
    }

    fn hear(&mut self, read: &mut BytesMut, out: &mut BytesMut) -> io::Result<()> {
        while let Some(packet) = packet::next(read, self.version)? {
            match packet {
                Packet::Answer(step, id, reason) => self.answered(step, id, &reason, out),
                Packet::Goodbye(reason) => {
                    let words = said(&reason);
                    self.goodbye = Some(reason);
                    return Err(io::Error::other(words));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.is_complete() || self.stops_here()
    }
}
