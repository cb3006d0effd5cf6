#![doc = include_str!("docs.md")]

mod config;
mod failure;
mod message;
mod packet;
mod settings;
mod talk;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;
use duly_core::{Clock, Delivery, Monotonic, Outcomes, Sink, SinkError, SinkErrorKind};

pub use config::{MqttConfig, MqttVersion};
use failure::no_connection;
use packet::{Packet, Welcome};
use settings::Settings;
use talk::{Ask, Batch, Outcome};

use crate::wires::{self, Wire, Wires};

/// Messages of one call that wait for their acknowledgements at the same time, if the broker allows as many.
const WINDOW: usize = 1024;
/// There are no more numbers for packets than this.
const PACKETS_MAX: usize = u16::MAX as usize;

/// Publishes by MQTT.
pub struct MqttSink {
    settings: Settings,
    wires: Arc<Wires<Welcome>>,
    /// The broker went, and maybe because of a message: until a call goes well, one after the other, so that it shows which.
    is_careful: AtomicBool,
}

impl MqttSink {
    fn new(settings: Settings, clock: Arc<dyn Clock>) -> Self {
        Self { settings, wires: Wires::new(clock, packet::FAREWELL), is_careful: AtomicBool::new(false) }
    }

    /// A connection that waits, or a new one.
    async fn wire(&self) -> Result<Wire<Welcome>, SinkError> {
        if let Some(wire) = self.wires.waiting() {
            return Ok(wire);
        }
        let Settings { address, version, qos, timeout, .. } = &self.settings;
        let mut wire = Wire::to(address).await.map_err(|why| wires::unconnected(&why))?;
        let keep_alive = u16::try_from(wires::silence_max(*timeout).as_secs()).unwrap_or(u16::MAX);
        let hello =
            packet::connect(*version, keep_alive, address.user.as_deref(), address.password.as_deref());
        let mut ask = Ask::new(hello, *version);
        wire.talk(&mut ask).await.map_err(|why| wires::unconnected(&why))?;
        let welcome = match ask.answer {
            Some(Packet::Welcome(welcome)) if welcome.reason.code == 0 => welcome,
            Some(Packet::Welcome(welcome)) => return Err(failure::not_let_in(&welcome.reason, *version)),
            Some(Packet::Goodbye(reason)) => return Err(failure::not_let_in(&reason, *version)),
            _ => return Err(no_connection("no answer to CONNECT that makes sense")),
        };
        if welcome.qos_max < *qos as u8 {
            let detail = format!("this broker has no QoS {}, only up to {}", *qos as u8, welcome.qos_max);
            return Err(SinkError::new(SinkErrorKind::Misconfigured, detail));
        }
        Ok(wire.greeted(welcome))
    }

    /// Publishes these. A broker may close the connection over a message that it refuses: what was not sent by then goes on another.
    async fn send(&self, batch: &[&Delivery]) -> Vec<Outcome> {
        let ends = self.wires.ends(self.settings.timeout);
        let mut outcomes = Vec::with_capacity(batch.len());
        loop {
            let (round, why) = self.round(&batch[outcomes.len()..], ends).await;
            let is_definite =
                |outcome: &Outcome| !matches!(outcome, Err(error) if error.kind == SinkErrorKind::Unknown);
            let goes_on = round.last().is_some_and(is_definite);
            outcomes.extend(round);
            let left = batch.len() - outcomes.len();
            if left == 0 || !goes_on {
                outcomes.extend(std::iter::repeat_n(Err(why), left));
                return outcomes;
            }
        }
    }

    /// What became of those that were sent on one connection, and what the others came to grief by.
    async fn round(&self, batch: &[&Delivery], ends: (Monotonic, Monotonic)) -> (Vec<Outcome>, SinkError) {
        let begin = async { (self.wires.turn().await, self.wire().await) };
        let (_turn, mut wire) = match self.wires.within(ends.0, begin).await {
            Some((turn, Ok(wire))) => (turn, wire),
            Some((_, Err(failure))) => return (Vec::new(), failure),
            None => return (Vec::new(), no_connection("no connection in time")),
        };
        let window = if self.is_careful.load(Ordering::Relaxed) { 1 } else { WINDOW };
        let welcome = wire.greeting.clone();
        let mut talk = Batch::new(batch, &self.settings, &welcome, window);
        let done = self.wires.within(ends.1, wire.talk(&mut talk)).await;
        let why = match done {
            Some(Ok(())) => {
                if talk.is_complete() {
                    self.is_careful.store(false, Ordering::Relaxed);
                }
                if talk.went_well() {
                    self.wires.give_back(wire);
                }
                "it was left unanswered".to_owned()
            }
            Some(Err(why)) => {
                if talk.may_have_a_culprit() {
                    self.is_careful.store(true, Ordering::Relaxed);
                }
                why.to_string()
            }
            None => "no acknowledgement in time".to_owned(),
        };
        (talk.outcomes(&why), no_connection(format!("not sent: {why}")))
    }

    /// PINGREQ and its answer.
    async fn ask(&self) -> Result<(), SinkError> {
        let _turn = self.wires.turn().await;
        let mut wire = self.wire().await?;
        let mut ask = Ask::new(Bytes::from_static(packet::PING), self.settings.version);
        wire.talk(&mut ask).await.map_err(|why| wires::unconnected(&why))?;
        match ask.answer {
            Some(Packet::Pong) => {
                self.wires.give_back(wire);
                Ok(())
            }
            Some(Packet::Goodbye(reason)) => Err(no_connection(failure::said(&reason))),
            _ => Err(no_connection("no answer to a ping that makes sense")),
        }
    }
}

impl MqttSink {
    async fn send_all(&self, batch: &[Delivery]) -> Vec<Outcome> {
        let checked: Vec<_> = batch.iter().map(|delivery| message::check(delivery, &self.settings)).collect();
        let fit: Vec<_> =
            batch.iter().zip(&checked).filter(|(_, fault)| fault.is_none()).map(|(each, _)| each).collect();
        if fit.is_empty() {
            return checked.into_iter().flatten().map(Err).collect();
        }
        let mut sent = self.send(&fit[..fit.len().min(PACKETS_MAX)]).await.into_iter();
        let missing = || Err(no_connection("not sent: more than fit into one call"));
        checked
            .into_iter()
            .map(|fault| fault.map_or_else(|| sent.next().unwrap_or_else(missing), Err))
            .collect()
    }
}

#[async_trait]
impl Sink for MqttSink {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        outcomes.report_all(self.send_all(batch).await);
    }

    /// Connects, if need be, and pings. Nothing is published.
    async fn probe(&self) -> Result<(), SinkError> {
        let (_, end) = self.wires.ends(self.settings.timeout);
        let asked = self.wires.within(end, self.ask()).await;
        asked.unwrap_or_else(|| Err(no_connection("no answer in time")))
    }
}
