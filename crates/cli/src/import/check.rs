//! Checks a line without a server, by the code that the server runs.

use duly::{Limits, Timestamp};

use duly_client::wire::{NewMessage, is_object, plain};
use duly_server::draft::draft;

/// A line that is a message.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) message: NewMessage,
    /// A hash of the content that the server compares when an id is sent again.
    pub(super) content_hash: u64,
}

/// Reads a line; a fault says where in it and why. Which limits the server has is not known here.
pub(super) fn line(line: &[u8], now: Timestamp, limits: &Limits) -> Result<Checked, String> {
    if !is_object(line) {
        return Err("it is no JSON object, such as {\"topic\":\"order\",\"delay\":\"15m\"}".into());
    }
    let mut reader = serde_json::Deserializer::from_slice(line);
    let message: NewMessage = serde_path_to_error::deserialize(&mut reader).map_err(|e| {
        let path = e.path().to_string();
        // The number of the line is told already, and to the parser every line is the first.
        let words = plain(&e.inner().to_string()).replace(" at line 1 column ", " at column ");
        if path == "." { words } else { format!("{path}: {words}") }
    })?;
    reader.end().map_err(|_| "there is more than one JSON value on it".to_owned())?;
    let content_hash = content_hash(&message, now, limits)?;
    Ok(Checked { message, content_hash })
}

/// Checks a message, and gives the hash of its content.
pub(super) fn content_hash(message: &NewMessage, now: Timestamp, limits: &Limits) -> Result<u64, String> {
    let checked = draft(message.clone()).and_then(|message| message.check(now, limits));
    let stored = checked.map_err(|fault| format!("{}: {} [{}]", fault.path, fault.detail, fault.code))?;
    Ok(stored.content_hash())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &[u8]) -> Result<NewMessage, String> {
        let now = Timestamp::from_millis(1_900_000_000_000);
        super::line(text, now, &Limits::default()).map(|checked| checked.message)
    }

    #[test]
    fn a_line_is_an_object_and_no_list_of_its_fields() {
        for text in ["[\"order\"]", "null", "not json"] {
            assert!(line(text.as_bytes()).unwrap_err().starts_with("it is no JSON object"), "{text}");
        }
        assert!(line(br#" {"topic":"order"}"#).is_ok());
    }

    #[test]
    fn a_fault_is_told_by_its_column_alone() {
        let words = line(br#"{"topic":"order","idd":"x"}"#).unwrap_err();
        assert!(words.ends_with(" at column 22") && !words.contains("line 1"), "{words}");
    }

    #[test]
    fn a_good_line_is_read() {
        let message = line(br#"{"topic":"order","json":{"a":1},"delay":"15m","id":"x"}"#).unwrap();
        assert_eq!(message.id.as_deref(), Some("x"));
    }

    #[test]
    fn a_bad_line_is_told_where_and_why() {
        for (text, says) in [
            (r#"{"topic":"order""#, "the JSON ends within an object"),
            (r#"{"topic":"order"} {}"#, "more than one JSON value"),
            (r#"{"topic":"order","dealy":"15m"}"#, "dealy"),
            (r#"{"topic":"order","delay":"soon"}"#, "delay: "),
            (r#"{"topic":"order","delay":"1s","level":"P0"}"#, "give one of delay"),
            (r#"{"topic":"order","body":"a","json":1}"#, "give one of body"),
            (r#"{"topic":"order","body_base64":"%"}"#, "body_base64"),
            (r#"{"topic":"order","id":"a/b"}"#, "id: "),
            (r#"{"topic":"order","priority":"high"}"#, "priority"),
            (r#"{"topic":"order","priority":10}"#, "priority"),
            (r#"{"topic":"order","retry":[3]}"#, "retry: found an array, expected an object"),
            (r#"{"topic":"order","retry":{"attempts":0}}"#, "retry.attempts: "),
            (r#"{"topic":"order","retry":{"backoff":"none"}}"#, "retry.backoff: "),
            (r#"{"topic":"order","retry":{"min":"2m","max":"1m"}}"#, "retry.min: "),
            (r#"{"topic":"order","properties":{"duly-id":"x"}}"#, "[reserved_property]"),
            (r#"{"topic":"order","properties":{"x-delay":"5"}}"#, "[reserved_property]"),
            (r#"{"topic":".."}"#, "topic: "),
            (r#"{"topic":"order","id":"."}"#, "id: "),
            (r#"{"topic":"order","sink":"a/b"}"#, "sink: "),
            (r#"{"topic":"order","delay":"9999d"}"#, "[too_far]"),
        ] {
            let fault = line(text.as_bytes()).unwrap_err();
            assert!(fault.contains(says), "{text}: {fault}");
        }
    }
}
