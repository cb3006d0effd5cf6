//! From a message to the headers of its request.

use duly_core::{Delivery, Invalid, Key, Tag};
use http::{
    HeaderMap,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT},
};

use super::sign;

const AGENT: &str = concat!("duly/", env!("CARGO_PKG_VERSION"));

/// Those that belong to the connection or to its framing: whoever sets them decides what the target takes for a request.
const OF_THE_CONNECTION: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];
/// Those that Duly sets itself, and those meant for a proxy.
const RESERVED_PREFIXES: [&str; 3] = ["duly-", "webhook-", "proxy-"];

/// Reads the name of a header that a configuration or a message may set.
pub(super) fn name(text: &str) -> Result<HeaderName, &'static str> {
    let name = HeaderName::from_bytes(text.as_bytes()).map_err(|_| "not a name that a header can have")?;
    let is_reserved = RESERVED_PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix));
    if is_reserved || OF_THE_CONNECTION.contains(&name.as_str()) {
        return Err("a header that Duly or the connection sets itself");
    }
    Ok(name)
}

/// Text as it is, in UTF-8. Line breaks and other control characters are refused.
pub(super) fn value(text: &str) -> Result<HeaderValue, &'static str> {
    HeaderValue::from_bytes(text.as_bytes()).map_err(|_| "not a value that a header can have")
}

/// All headers of a request at `seconds` of wall time. `fixed` are the sink's own.
pub(super) fn headers(
    delivery: &Delivery,
    fixed: &HeaderMap,
    keys: &[sign::Key],
    seconds: u64,
) -> Result<HeaderMap, Invalid> {
    let message = &delivery.message;
    let id = message.id.as_str();
    let mut map = HeaderMap::with_capacity(fixed.len() + message.properties.len() + 12);
    map.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    map.insert(CONTENT_TYPE, HeaderValue::from_static(message.body.kind().mime()));

    for (text, words) in message.properties.iter() {
        let fault = |why| Invalid::new("bad_header", format!("properties.{text}"), why);
        let name = name(text).map_err(fault)?;
        if fixed.contains_key(&name) {
            return Err(fault("a header that the sink's configuration sets"));
        }
        let value = value(words).map_err(fault)?;
        let is_ours = name == USER_AGENT || name == CONTENT_TYPE;
        if map.insert(name, value).is_some() && !is_ours {
            return Err(fault("the same header as another property: case does not tell them apart"));
        }
    }
    for (name, value) in fixed {
        map.insert(name, value.clone());
    }

    let mut own = |name: &'static str, text: &str| {
        let value = value(text).map_err(|why| Invalid::new("bad_header", name, why))?;
        map.insert(HeaderName::from_static(name), value);
        Ok::<_, Invalid>(())
    };
    own("duly-id", id)?;
    own("duly-due", &message.due.as_millis().to_string())?;
    own("duly-attempt", &delivery.attempt.to_string())?;
    own("duly-topic", message.topic.as_str())?;
    if let Some(tag) = message.tag.as_ref().map(Tag::as_str) {
        own("duly-tag", tag)?;
    }
    if let Some(key) = message.key.as_ref().map(Key::as_str) {
        own("duly-key", key)?;
    }
    own("webhook-id", id)?;
    own("webhook-timestamp", &seconds.to_string())?;
    if let Some(signature) = sign::signature(keys, id, seconds, message.body.as_bytes()) {
        own("webhook-signature", &signature)?;
    }
    Ok(map)
}
