//! What can be told about a line without asking the server.

use base64::{Engine, engine::general_purpose::STANDARD};
use duly::{Key, MessageId, SinkName, Tag, Topic};

use crate::wire::{NewMessage, is_object, plain};

/// Reads a line; a fault says where in it and why.
pub(super) fn line(line: &[u8]) -> Result<NewMessage, String> {
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
    named(&message).map_err(|fault| format!("{}: {}", fault.path, fault.detail))?;
    if [message.body.is_some(), message.json.is_some(), message.body_base64.is_some()]
        .iter()
        .filter(|is| **is)
        .count()
        > 1
    {
        return Err("more than one of body, json and body_base64".into());
    }
    if [message.delay.is_some(), message.deliver_at.is_some(), message.level.is_some()]
        .iter()
        .filter(|is| **is)
        .count()
        > 1
    {
        return Err("more than one of delay, deliver_at and level".into());
    }
    if let Some(text) = &message.body_base64 {
        STANDARD.decode(text).map_err(|e| format!("body_base64: {e}"))?;
    }
    if message.priority.is_some_and(|priority| priority > 9) {
        return Err("priority: it goes from 0 to 9".into());
    }
    Ok(message)
}

fn named(message: &NewMessage) -> Result<(), duly::Invalid> {
    Topic::parse(&message.topic)?;
    message.sink.as_deref().map(SinkName::parse).transpose()?;
    message.id.as_deref().map(MessageId::parse).transpose()?;
    message.tag.as_deref().map(Tag::parse).transpose()?;
    message.key.as_deref().map(Key::parse).transpose()?;
    message.delay.as_ref().map(|delay| delay.span("delay")).transpose()?;
    message.max_lateness.as_ref().map(|span| span.span("max_lateness")).transpose()?;
    message.deliver_at.as_ref().map(|at| at.due("deliver_at")).transpose()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (r#"{"topic":"order""#, "EOF"),
            (r#"{"topic":"order"} {}"#, "more than one JSON value"),
            (r#"{"topic":"order","dealy":"15m"}"#, "dealy"),
            (r#"{"topic":"order","delay":"soon"}"#, "delay: "),
            (r#"{"topic":"order","delay":"1s","level":"P0"}"#, "more than one of delay"),
            (r#"{"topic":"order","body":"a","json":1}"#, "more than one of body"),
            (r#"{"topic":"order","body_base64":"%"}"#, "body_base64"),
            (r#"{"topic":"order","id":"a/b"}"#, "id: "),
            (r#"{"topic":"order","priority":"high"}"#, "priority"),
            (r#"{"topic":"order","priority":10}"#, "priority"),
        ] {
            let fault = line(text.as_bytes()).unwrap_err();
            assert!(fault.contains(says), "{text}: {fault}");
        }
    }
}
