//! Reads request bodies, bounded in bytes and in time.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use duly::{ErrorCode, Limits};
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{
    app::App,
    body_memory::Share,
    fault::{ApiResult, Fault},
};
use crate::wire::{is_object, plain};

/// Bytes of a refused body that are drained.
const DRAINED_MAX: usize = 64 << 20;
/// A text may be written with six bytes for one: `\u0001`.
const ESCAPED_BYTES_MAX: usize = 6;
/// Bytes of a request besides the body of its message.
const ENVELOPE_BYTES: usize = 512 << 10;

/// The largest request that can hold a message within the limits.
pub(super) fn request_max(limits: &Limits) -> usize {
    limits.body_bytes_max.saturating_mul(ESCAPED_BYTES_MAX).saturating_add(ENVELOPE_BYTES)
}

/// Reads the whole body.
async fn whole(app: &App, body: Body) -> ApiResult<(Bytes, Share)> {
    whole_within(app, body, app.bodies.share()).await
}

/// Reads the whole body into this share.
async fn whole_within(app: &App, mut body: Body, share: Share) -> ApiResult<(Bytes, Share)> {
    let read = async {
        let gathered = gather(app, &mut body, share).await;
        if gathered.is_err() {
            drain(&mut body).await;
        }
        gathered
    };
    timeout(app.http.body_timeout, read).await.unwrap_or_else(|_| Err(late(app)))
}

/// Drains the body. A client that is still writing when the connection closes would not read the response.
pub(super) async fn drain(body: &mut Body) {
    let mut left = DRAINED_MAX;
    while left > 0
        && let Some(Ok(frame)) = body.frame().await
    {
        left = left.saturating_sub(frame.data_ref().map_or(1, Bytes::len).max(1));
    }
}

pub(super) fn late(app: &App) -> Fault {
    let detail = format!(
        "the body was not there within {:?}; nothing was done, send it again in one go",
        app.http.body_timeout
    );
    Fault::new(ErrorCode::BodyTimeout, detail)
}

pub(super) fn broken(error: &axum::Error) -> Fault {
    Fault::new(ErrorCode::IncompleteBody, format!("the body ended before its time ({error}); send it again"))
}

/// A client that waits for `100 Continue` is refused before it sends a body that is too large. Batches have no limit.
pub(super) fn expected(app: &App, path: &str, headers: &HeaderMap) -> ApiResult<()> {
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let waits = text(header::EXPECT).is_some_and(|expect| expect.eq_ignore_ascii_case("100-continue"));
    let length = text(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    let max = request_max(&app.limits);
    if waits && path != super::batch::PATH && length.is_some_and(|length| length > max as u64) {
        return Err(too_large(max));
    }
    Ok(())
}

fn too_large(max: usize) -> Fault {
    let detail = format!("the request has more than {max} bytes; send larger things by reference");
    Fault::new(ErrorCode::BodyTooLarge, detail)
}

async fn gather(app: &App, body: &mut Body, mut share: Share) -> ApiResult<(Bytes, Share)> {
    let max = request_max(&app.limits);
    let mut first = Bytes::new();
    let mut gathered = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
        let len = first.len() + gathered.len() + data.len();
        if len > max {
            return Err(too_large(max));
        }
        share.grow(len)?;
        // Most bodies arrive as one frame: no copy.
        if first.is_empty() && gathered.is_empty() {
            first = data;
        } else {
            gathered.extend_from_slice(&std::mem::take(&mut first));
            gathered.extend_from_slice(&data);
        }
    }
    Ok((if gathered.is_empty() { first } else { gathered.freeze() }, share))
}

/// Reads a JSON body.
pub(super) async fn json<T: DeserializeOwned>(app: &App, body: Body) -> ApiResult<T> {
    json_with_share(app, body).await.map(|(value, _)| value)
}

/// Reads the JSON body of an ack or extend, for which there is room although other bodies use up theirs.
pub(super) async fn json_of_receipts<T: DeserializeOwned>(app: &App, body: Body) -> ApiResult<T> {
    let (bytes, _share) = whole_within(app, body, app.bodies.receipts_share()).await?;
    parse(&bytes)
}

/// The same of a nack. `lossy` names a field that is parsed as bytes: the parser accepts raw control characters in it, and they are
/// refused here, as in every other string.
pub(super) async fn json_of_nack<T: DeserializeOwned>(
    app: &App,
    body: Body,
    lossy: &'static str,
) -> ApiResult<T> {
    let (bytes, _share) = whole_within(app, body, app.bodies.receipts_share()).await?;
    parse_with_lossy(&bytes, lossy)
}

fn parse_with_lossy<T: DeserializeOwned>(bytes: &[u8], lossy: &'static str) -> ApiResult<T> {
    let value = parse(bytes)?;
    // In any other string the parser has refused it.
    if has_raw_control(bytes) { Err(raw_control(lossy)) } else { Ok(value) }
}

/// Whether a string of this JSON has a control character that is not escaped.
fn has_raw_control(json: &[u8]) -> bool {
    let (mut is_string, mut is_escaped) = (false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'"' => is_string = !is_string,
            b'\\' => is_escaped = is_string,
            0..0x20 if is_string => return true,
            _ => {}
        }
    }
    false
}

fn raw_control(path: &str) -> Fault {
    let detail = "a control character stands in a string as it is; write it as \\n, \\t or \\u0001";
    Fault::at(ErrorCode::BadJson, path, detail)
}

/// Reads a JSON body that stays in memory for longer, and returns its share with it.
pub(super) async fn json_with_share<T: DeserializeOwned>(app: &App, body: Body) -> ApiResult<(T, Share)> {
    let (bytes, share) = whole(app, body).await?;
    Ok((parse(&bytes)?, share))
}

/// Reads a JSON body; an empty one means the defaults.
pub(super) async fn json_or_default<T: DeserializeOwned + Default>(app: &App, body: Body) -> ApiResult<T> {
    let (bytes, _share) = whole(app, body).await?;
    if bytes.iter().all(u8::is_ascii_whitespace) { Ok(T::default()) } else { parse(&bytes) }
}

/// Parses a JSON object. An error names the path.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> ApiResult<T> {
    // Tracking the path is slow: parse again with it only after an error.
    let value = serde_json::from_slice(bytes).map_err(|_| explain::<T>(bytes))?;
    // Serde accepts an array as the fields in order; refuse that.
    if is_object(bytes) { Ok(value) } else { Err(no_object()) }
}

fn no_object() -> Fault {
    Fault::new(ErrorCode::BadField, "an object in braces is expected here; /openapi.json has its fields")
}

/// The field that is missing or stands twice. The parser's path is that of the object that holds it.
fn field_of(path: String, words: &str) -> String {
    let after = ["missing field `", "duplicate field `"].iter().find_map(|begin| words.strip_prefix(begin));
    let field = after.and_then(|rest| rest.split_once('`')).map(|(field, _)| field);
    match (path.as_str(), field) {
        ("" | ".", field) => field.unwrap_or_default().to_owned(),
        (_, Some(field)) if !path.ends_with(&format!(".{field}")) => format!("{path}.{field}"),
        _ => path,
    }
}

fn explain<T: DeserializeOwned>(bytes: &[u8]) -> Fault {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        let detail = "the body is empty; send a JSON object, whose fields are in /openapi.json";
        return Fault::new(ErrorCode::BadJson, detail);
    }
    let mut input = serde_json::Deserializer::from_slice(bytes);
    match serde_path_to_error::deserialize::<_, T>(&mut input) {
        Ok(_) => {
            let detail = match input.end() {
                Err(error) => format!("{}; send one JSON value only", plain(&error.to_string())),
                Ok(()) => "it cannot be read".into(),
            };
            Fault::new(ErrorCode::BadJson, detail)
        }
        Err(error) => {
            let path = error.path().to_string();
            let inner = error.into_inner();
            match inner.classify() {
                serde_json::error::Category::Data if !is_object(bytes) => no_object(),
                serde_json::error::Category::Data => {
                    let detail = plain(&inner.to_string());
                    // At the root, an error without a field is about the object itself.
                    let path = field_of(path, &detail);
                    if path.is_empty() {
                        Fault::new(ErrorCode::BadField, detail)
                    } else {
                        Fault::at(ErrorCode::BadField, path, detail)
                    }
                }
                _ => unreadable(&path, &plain(&inner.to_string())),
            }
        }
    }
}

/// A syntax error.
fn unreadable(path: &str, words: &str) -> Fault {
    // The error is inside a string: name the field that holds it.
    if words.contains("control character") && path != "." {
        return raw_control(path);
    }
    let is_half = words.contains("surrogate") || words.contains("hex escape");
    if is_half && path != "." {
        let detail = format!(
            "half a character ({words}): \\ud800 to \\udfff stand in pairs; write the whole character, or \\ufffd for one that is lost"
        );
        return Fault::at(ErrorCode::BadJson, path, detail);
    }
    Fault::new(ErrorCode::BadJson, format!("{words}; send JSON, UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Nack, NewMessage};

    #[test]
    fn half_a_character_is_told_by_its_field() {
        let fault = parse::<NewMessage>(br#"{"topic":"a","properties":{"x":"\ud800"}}"#).unwrap_err();
        assert_eq!(fault.code(), ErrorCode::BadJson);
        assert_eq!(fault.item().path.as_deref(), Some("properties.x"));
    }

    #[test]
    fn a_field_that_is_missing_or_stands_twice_is_told_by_its_path() {
        for (json, path) in [
            (r#"{}"#, "receipts"),
            (r#"{"receipts":[],"receipts":[]}"#, "receipts"),
            (r#"{"receipts":[],"error":"a","error":"b"}"#, "error"),
        ] {
            let fault = parse::<Nack>(json.as_bytes()).unwrap_err();
            assert_eq!(
                (fault.code(), fault.item().path.as_deref()),
                (ErrorCode::BadField, Some(path)),
                "{json}"
            );
        }
        let fault = parse::<NewMessage>(br#"{"topic":"a","retry":{"min":"1s","min":"1s"}}"#).unwrap_err();
        assert_eq!(fault.item().path.as_deref(), Some("retry.min"));
        for empty in ["", " \n"] {
            let detail = parse::<Nack>(empty.as_bytes()).unwrap_err().item().detail;
            assert!(detail.starts_with("the body is empty"), "{detail}");
        }
        let detail = parse::<Nack>(b"{\"receipts\":").unwrap_err().item().detail;
        assert!(detail.starts_with("the JSON ends within a value"), "{detail}");
    }

    #[test]
    fn a_raw_control_character_is_refused_in_every_string() {
        for byte in 0..0x20_u8 {
            let nack = [&br#"{"receipts":[],"error":"a"#[..], &[byte], br#"b"}"#].concat();
            let fault = parse_with_lossy::<Nack>(&nack, "error").unwrap_err();
            assert_eq!(fault.code(), ErrorCode::BadJson, "{byte}");
            assert_eq!(fault.item().path.as_deref(), Some("error"), "{byte}");
        }
        let escaped = b"{\n\t\"receipts\":[],\"error\":\"\\\\\\n\\t\\u0001\\\"\"\n}";
        let nack = parse_with_lossy::<Nack>(escaped, "error").unwrap();
        assert_eq!(nack.error.as_deref(), Some("\\\n\t\u{1}\""));
        let fault = parse::<NewMessage>(b"{\"topic\":\"a\",\"properties\":{\"x\":\"\n\"}}").unwrap_err();
        assert_eq!(fault.item().path.as_deref(), Some("properties.x"));
    }
}
