//! Messages and due times as Rust code writes them.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::{
    Error,
    wire::{Delay, Moment, NewMessage, Reschedule},
};

impl NewMessage {
    /// A message to the queue `topic`, or to that topic of the [`sink`](Self::sink). Due now, unless it says otherwise.
    pub fn to(topic: impl Into<String>) -> Self {
        Self { topic: topic.into(), ..Self::default() }
    }

    /// Its id: sent again with the same content, it is accepted once. Made by the server if left out.
    pub fn id(self, id: impl Into<String>) -> Self {
        Self { id: Some(id.into()), ..self }
    }

    /// The configured sink that it goes to, instead of the built-in queue.
    pub fn sink(self, name: impl Into<String>) -> Self {
        Self { sink: Some(name.into()), ..self }
    }

    /// Its body, as text.
    pub fn text(self, body: impl Into<String>) -> Self {
        Self { body: Some(body.into()), json: None, body_base64: None, ..self }
    }

    /// Its body, as JSON.
    pub fn json(self, value: &impl Serialize) -> Result<Self, Error> {
        let json = serde_json::value::to_raw_value(value)
            .map_err(|e| Error::Invalid(format!("cannot write JSON: {e}")))?;
        Ok(Self { json: Some(json), body: None, body_base64: None, ..self })
    }

    /// Due this long after it is accepted.
    pub fn after(self, delay: Duration) -> Self {
        Self { delay: Some(delay.into()), deliver_at: None, level: None, ..self }
    }

    /// Due at this time.
    pub fn at(self, time: SystemTime) -> Self {
        Self { deliver_at: Some(time.into()), delay: None, level: None, ..self }
    }

    /// Due after the delay of this level of the server.
    pub fn level(self, name: impl Into<String>) -> Self {
        Self { level: Some(name.into()), delay: None, deliver_at: None, ..self }
    }

    /// A property: becomes a header of the target.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(name.into(), value.into());
        self
    }
}

impl Reschedule {
    /// Due this long from now.
    pub fn after(delay: Duration) -> Self {
        Self { delay: Some(delay.into()), deliver_at: None }
    }

    /// Due at this time.
    pub fn at(time: SystemTime) -> Self {
        Self { deliver_at: Some(time.into()), delay: None }
    }
}

impl From<SystemTime> for Moment {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        match Delay::from(since) {
            Delay::Millis(millis) => Self::Millis(millis),
            Delay::Text(text) => Self::Text(text),
        }
    }
}
