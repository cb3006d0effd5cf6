//! Events while they happen, as server-sent events.

use bytes::Bytes;

use crate::{Client, Error, lines::Lines, messages::encoded, wire::Event};

/// Which events are followed. The default is all of them.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// Only these types, with commas between: those of [`Event::KINDS`].
    pub types: Option<String>,
    /// Only those of this sink.
    pub sink: Option<String>,
    /// Only those of this topic.
    pub topic: Option<String>,
}

/// One event as the server sent it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawEvent {
    /// Its type; `message` if the server names none.
    pub kind: String,
    /// Its data, in JSON.
    pub data: String,
}

impl RawEvent {
    /// The typed event; `None` for a type that only a newer server knows.
    pub fn parse(&self) -> Option<Event> {
        serde_json::from_str(&self.data).ok()
    }
}

/// The events of a server, one after the other.
pub struct Events {
    lines: Lines,
    reader: Reader,
}

impl Client {
    /// Follows what happens on the server from now on.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn events(&self, filter: &EventFilter) -> Result<Events, Error> {
        let query = encoded([
            ("types", filter.types.clone()),
            ("sink", filter.sink.clone()),
            ("topic", filter.topic.clone()),
        ]);
        let lines = self.follow(&format!("/v1/events?{query}")).await?;
        Ok(Events { lines, reader: Reader::default() })
    }
}

impl Events {
    /// The next event; `None` once the server ends them. A server without events sends comments to keep the connection alive: if nothing
    /// comes for a minute, the connection is lost, and this is [`Error::NoAnswer`]. Then follow again with [`Client::events`]; what
    /// happened in between is not told.
    ///
    /// Cancel safety: nothing is lost if the call is dropped.
    pub async fn next(&mut self) -> Result<Option<RawEvent>, Error> {
        while let Some(line) = self.lines.next().await? {
            if let Some(event) = self.reader.line(&line) {
                return Ok(Some(event));
            }
        }
        // An event without its final empty line is incomplete: it is dropped.
        Ok(None)
    }
}

#[derive(Default)]
struct Reader {
    event: String,
    data: Option<String>,
}

impl Reader {
    fn line(&mut self, line: &Bytes) -> Option<RawEvent> {
        let line = String::from_utf8_lossy(line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            let data = self.data.take()?;
            return Some(RawEvent { kind: if event.is_empty() { "message".into() } else { event }, data });
        }
        // A line that begins with a colon only keeps the connection alive.
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event = value.to_owned(),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, String)> {
        let mut reader = Reader::default();
        let lines = text.lines().map(|line| Bytes::copy_from_slice(line.as_bytes()));
        lines.filter_map(|line| reader.line(&line)).map(|event| (event.kind, event.data)).collect()
    }

    #[test]
    fn an_event_ends_with_an_empty_line() {
        let text = ": hello\n\nevent: accepted\ndata: {\"id\":1}\n\ndata:a\ndata: b\nid: 7\n\nevent: cut";
        let pair = |event: &str, data: &str| (event.to_owned(), data.to_owned());
        assert_eq!(read(text), [pair("accepted", "{\"id\":1}"), pair("message", "a\nb")]);
    }

    #[test]
    fn an_event_without_data_is_none() {
        assert!(read("event: ping\n\n").is_empty());
    }
}
