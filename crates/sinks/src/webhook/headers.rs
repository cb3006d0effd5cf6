//! From a message to the headers of its request.

use std::borrow::Cow;

use duly_core::{Delivery, ErrorCode, Invalid, Key, Properties, StoredMessage, Tag};
use http::{
    HeaderMap,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT},
};

use super::{
    endpoint::{Endpoint, UrlSource},
    settings::Settings,
    sign,
};

const AGENT: &str = concat!("duly/", env!("CARGO_PKG_VERSION"));

/// Headers of the connection or of its framing: with them, a sender could change where the target sees the request end.
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
/// Headers that Duly sets itself, and headers for a proxy.
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

/// The headers that the sink adds to requests to one address.
pub(super) struct Credentials<'s> {
    fixed: Cow<'s, HeaderMap>,
    keys: Cow<'s, [sign::Key]>,
}

impl<'s> Credentials<'s> {
    /// These headers and keys.
    pub(super) fn of(fixed: &'s HeaderMap, keys: &'s [sign::Key]) -> Self {
        Self { fixed: Cow::Borrowed(fixed), keys: Cow::Borrowed(keys) }
    }

    /// The sink's own headers go to the sink's own address alone: whoever may send to an address of their choice would otherwise
    /// read them there. Requests to such an address are signed with a key of that address, for the same reason.
    pub(super) fn to(endpoint: &Endpoint, settings: &'s Settings) -> Self {
        match endpoint.source {
            UrlSource::Config => Self::of(&settings.headers, &settings.keys),
            UrlSource::Message => {
                let keys = sign::keys_of_url(&settings.keys, &endpoint.uri.to_string());
                Self { fixed: Cow::Owned(HeaderMap::new()), keys: Cow::Owned(keys) }
            }
        }
    }
}

/// Why no request can have the properties of this message as its headers, if it is so.
pub(super) fn check(message: &StoredMessage, source: UrlSource, settings: &Settings) -> Result<(), Invalid> {
    if message.properties.is_empty() {
        return Ok(());
    }
    let mut map = HeaderMap::with_capacity(message.properties.len());
    match source {
        UrlSource::Config => add_properties(&mut map, message, &settings.headers),
        UrlSource::Message => add_properties(&mut map, message, &HeaderMap::new()),
    }
}

fn add_properties(map: &mut HeaderMap, message: &StoredMessage, fixed: &HeaderMap) -> Result<(), Invalid> {
    for (text, words) in message.properties.iter() {
        let fault = |why: &str| Invalid::property(text, why);
        let name = name(text).map_err(fault)?;
        if fixed.contains_key(&name) {
            // The trace of the call is nobody's wish: the configuration goes before it.
            if matches!(text, Properties::TRACEPARENT | Properties::TRACESTATE) {
                continue;
            }
            return Err(fault("a header that the sink's configuration sets"));
        }
        let value = value(words).map_err(fault)?;
        let is_ours = name == USER_AGENT || name == CONTENT_TYPE;
        if map.insert(name, value).is_some() && !is_ours {
            return Err(fault("the same header as another property: case does not tell them apart"));
        }
    }
    Ok(())
}

/// All headers of a request at `seconds` of wall time.
pub(super) fn headers(
    delivery: &Delivery,
    credentials: &Credentials<'_>,
    seconds: u64,
) -> Result<HeaderMap, Invalid> {
    let Credentials { fixed, keys } = credentials;
    let message = &delivery.message;
    let id = message.id.as_str();
    let mut map = HeaderMap::with_capacity(fixed.len() + message.properties.len() + 12);
    map.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    map.insert(CONTENT_TYPE, HeaderValue::from_static(message.body.kind().mime()));

    add_properties(&mut map, message, fixed)?;
    for (name, value) in fixed.iter() {
        map.insert(name, value.clone());
    }

    let mut own = |name: &'static str, text: &str| {
        let value = value(text).map_err(|why| Invalid::new(ErrorCode::BadProperty, name, why))?;
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
