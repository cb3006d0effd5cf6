//! Messages and due times as Rust code writes them.

use std::time::{Duration, SystemTime};

use duly_core::Timestamp;
use serde::Serialize;

use crate::{
    Error,
    wire::{DUE_MILLIS_MIN, Delay, Moment, NewMessage, Reschedule},
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

    /// Due at this time: at once if it is past. A time before 1970 is sent as the begin of 1970.
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

    /// Due at this time: at once if it is past. A time before 1970 is sent as the begin of 1970.
    pub fn at(time: SystemTime) -> Self {
        Self { deliver_at: Some(time.into()), delay: None }
    }
}

impl From<SystemTime> for Moment {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        match Delay::from(since) {
            // As a number it would be taken for seconds, and refused.
            Delay::Millis(millis) if millis < DUE_MILLIS_MIN => {
                Self::Text(Timestamp::from_millis(millis).to_string())
            }
            Delay::Millis(millis) => Self::Millis(millis),
            Delay::Text(text) => Self::Text(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_before_2001_is_one_that_the_server_takes() {
        let epoch = SystemTime::UNIX_EPOCH;
        let last = epoch + Duration::from_millis(DUE_MILLIS_MIN - 1);
        for (time, millis) in [
            (epoch - Duration::from_secs(1), 0),
            (epoch, 0),
            (epoch + Duration::from_secs(86_400), 86_400_000),
            (last, DUE_MILLIS_MIN - 1),
            (last + Duration::from_millis(1), DUE_MILLIS_MIN),
        ] {
            let message = NewMessage::to("a").at(time);
            let line = serde_json::to_string(&message).unwrap();
            let read: NewMessage = serde_json::from_str(&line).unwrap();
            let due = read.deliver_at.unwrap().time("deliver_at");
            assert_eq!(due, Ok(Timestamp::from_millis(millis)), "{line}");
            let moved = Reschedule::at(time).deliver_at.unwrap().time("deliver_at");
            assert_eq!(moved, Ok(Timestamp::from_millis(millis)));
        }
    }
}
