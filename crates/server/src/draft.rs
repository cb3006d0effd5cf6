//! From what a client wrote to a message that Duly takes. The server does it when a message comes, and whoever checks messages beforehand does
//! the same.

use base64::{Engine, engine::general_purpose::STANDARD};
use duly::{Backoff, Body, ContentKind, ErrorCode, Invalid, Message, RetryOverride};
use duly_client::wire::{Delay, NewMessage, Retry};
use serde_json::value::RawValue;

/// How deep lists and objects of a `json` body may be nested. A receiver gets it in one response with other messages: a parser that gives up
/// on its depth would lose all of them. Python gives up at about 1,000, Jackson at 1,000, many at less with large frames.
const JSON_DEPTH_MAX: usize = 500;

/// The message that is meant, to be [checked](Message::check) or sent.
pub fn draft(new: NewMessage) -> Result<Message, Invalid> {
    let mut message = Message::to_sink(new.sink_name(), &new.topic);
    if new.sink_name().contains('/') {
        return Err(Invalid::new(ErrorCode::BadSink, "sink", "a sink's name has no slash"));
    }
    // Programs that write every field have `null` for those that they do not set.
    let has_other_body = new.body.is_some() || new.body_base64.is_some();
    let json = new.json.filter(|json| !(has_other_body && json.get() == "null"));
    message = match (new.body, json, new.body_base64) {
        (None, None, None) => message,
        (Some(text), None, None) => message.text(text),
        (None, Some(json), None) => message.body(Body::from_parts(ContentKind::Json, compact(&json)?)),
        (None, None, Some(base64)) => message.bytes(decoded(&base64)?),
        _ => {
            let detail = "give one of body, json and body_base64";
            return Err(Invalid::new(ErrorCode::TwoBodies, "body", detail));
        }
    };
    message = match (new.delay, new.deliver_at, new.level) {
        (None, None, None) => message,
        (Some(delay), None, None) => message.after(delay.span("delay")?),
        (None, Some(moment), None) => message.at(moment.time("deliver_at")?),
        (None, None, Some(level)) => message.level(level),
        _ => {
            let detail = "give one of delay, deliver_at and level";
            return Err(Invalid::new(ErrorCode::TwoTimes, "delay", detail));
        }
    };
    if let Some(id) = new.id {
        message = message.id(id);
    }
    if let Some(tag) = new.tag {
        message = message.tag(tag);
    }
    if let Some(key) = new.key {
        message = message.key(key);
    }
    for (name, value) in new.properties {
        message = message.property(name, value);
    }
    if let Some(priority) = new.priority {
        message = message.priority(priority);
    }
    if let Some(span) = new.max_lateness {
        message = message.max_lateness(span.span("max_lateness")?);
    }
    if let Some(retry) = new.retry {
        message = message.retry(retries(&retry)?);
    }
    Ok(message)
}

fn decoded(base64: &str) -> Result<Vec<u8>, Invalid> {
    STANDARD.decode(base64).map_err(|error| {
        Invalid::new(
            ErrorCode::BadBody,
            "body_base64",
            format!("not base64: {error}; use the standard alphabet with padding"),
        )
    })
}

/// The value without the spaces between its parts: how it was laid out is not part of the message.
/// Refused if its lists and objects are nested deeper than common readers take.
fn compact(json: &RawValue) -> Result<Vec<u8>, Invalid> {
    let text = json.get().as_bytes();
    if is_too_deep(text) {
        let detail = format!("lists and objects may be nested {JSON_DEPTH_MAX} deep; send it as body");
        return Err(Invalid::new(ErrorCode::BadBody, "json", detail));
    }
    let mut out = Vec::with_capacity(text.len());
    let kept = |(byte, in_string): (u8, bool)| (in_string || !byte.is_ascii_whitespace()).then_some(byte);
    out.extend(bytes(text).filter_map(kept));
    Ok(out)
}

/// Whether lists and objects of this JSON are nested deeper than common readers take.
pub(crate) fn is_too_deep(json: &[u8]) -> bool {
    let mut depth = 0_usize;
    bytes(json).filter(|(_, in_string)| !in_string).any(|(byte, _)| {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > JSON_DEPTH_MAX
    })
}

/// The bytes of a JSON text, each with whether it is part of a string.
fn bytes(json: &[u8]) -> impl Iterator<Item = (u8, bool)> {
    let (mut quoted, mut escaped) = (false, false);
    json.iter().map(move |&byte| {
        let in_string = quoted || byte == b'"';
        quoted = if quoted { escaped || byte != b'"' } else { in_string };
        escaped = in_string && !escaped && byte == b'\\';
        (byte, in_string)
    })
}

fn retries(retry: &Retry) -> Result<RetryOverride, Invalid> {
    let backoff = match retry.backoff.as_deref() {
        None => None,
        Some("fixed") => Some(Backoff::Fixed),
        Some("linear") => Some(Backoff::Linear),
        Some("exponential") => Some(Backoff::Exponential),
        Some(other) => {
            let detail = format!("{other:?} is none of fixed, linear and exponential");
            return Err(Invalid::new(ErrorCode::BadRetry, "retry.backoff", detail));
        }
    };
    if retry.attempts == Some(0) {
        return Err(Invalid::new(
            ErrorCode::BadRetry,
            "retry.attempts",
            "at least one attempt; cancel it to have none",
        ));
    }
    let span = |delay: &Option<Delay>, path| -> Result<_, Invalid> {
        delay.as_ref().map(|delay| delay.span(path)).transpose()
    };
    let (min, max) = (span(&retry.min, "retry.min")?, span(&retry.max, "retry.max")?);
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        return Err(Invalid::new(
            ErrorCode::BadRetry,
            "retry.min",
            "the first wait is longer than the longest",
        ));
    }
    Ok(RetryOverride { attempts: retry.attempts, backoff, min, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn the_layout_of_json_is_not_part_of_the_message() {
        assert_eq!(
            compact(&raw("{ \"a b\" :\t[1, 2.50,\n \"c \\\" d\"] }")).unwrap(),
            b"{\"a b\":[1,2.50,\"c \\\" d\"]}"
        );
        assert_eq!(compact(&raw("\"\\\\\"")).unwrap(), b"\"\\\\\"");
        assert_eq!(compact(&raw(" 12345678901234567890.10 ")).unwrap(), b"12345678901234567890.10");
    }

    #[test]
    fn json_that_readers_give_up_on_is_refused() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(compact(&raw(&nested(JSON_DEPTH_MAX))).is_ok());
        assert!(compact(&raw(&format!("[{}]", vec![nested(JSON_DEPTH_MAX - 1); 3].join(",")))).is_ok());
        assert!(compact(&raw(&format!("\"{}\"", nested(100_000)))).is_ok(), "in a text they are no lists");
        assert_eq!(compact(&raw(&nested(JSON_DEPTH_MAX + 1))).unwrap_err().code, "bad_body");
    }

    #[test]
    fn null_is_a_json_body_unless_there_is_another() {
        let body = |text: &str| {
            let message = draft(serde_json::from_str(text).unwrap()).unwrap();
            let stored = message.check(duly::Timestamp::default(), &duly::Limits::default()).unwrap();
            (stored.body.kind(), String::from_utf8(stored.body.as_bytes().to_vec()).unwrap())
        };
        assert_eq!(body(r#"{"topic":"a","json":null}"#), (ContentKind::Json, "null".into()));
        assert_eq!(body(r#"{"topic":"a","json":null,"body":null}"#), (ContentKind::Json, "null".into()));
        assert_eq!(body(r#"{"topic":"a","json":null,"body":"x"}"#), (ContentKind::Text, "x".into()));
        assert_eq!(
            body(r#"{"topic":"a","json":null,"body_base64":"eA=="}"#),
            (ContentKind::Bytes, "x".into())
        );
    }

    #[test]
    fn at_most_one_body_and_one_time() {
        let code = |text: &str| draft(serde_json::from_str(text).unwrap()).unwrap_err().code;
        assert_eq!(code(r#"{"topic":"a","body":"x","json":1}"#), "two_bodies");
        assert_eq!(code(r#"{"topic":"a","delay":1,"level":"P0"}"#), "two_times");
        assert_eq!(code(r#"{"topic":"a","retry":{"attempts":0}}"#), "bad_retry");
        assert_eq!(code(r#"{"topic":"a","retry":{"backoff":"never"}}"#), "bad_retry");
        assert_eq!(code(r#"{"topic":"a","body_base64":"!"}"#), "bad_body");
        assert_eq!(code(r#"{"topic":"a","sink":"b/c"}"#), "bad_sink");
    }
}
