//! Columns of JSON text that people can read: properties, retries, the history.

use std::time::Duration;

use duly_core::{
    Attempt, Backoff, ContentKind, DeadReason, ErrorCode, Invalid, Outcome, Properties, RetryOverride,
    Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

/// The kind of a body by its word; without one, text is what can be read as text.
pub(super) fn kind_of(word: Option<&str>, body: &[u8]) -> Result<ContentKind, Invalid> {
    match word {
        Some(word) => ContentKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == word)
            .ok_or_else(|| Invalid::new(ErrorCode::BadKind, "content_kind", "it is text, json or bytes")),
        None if std::str::from_utf8(body).is_ok() => Ok(ContentKind::Text),
        None => Ok(ContentKind::Bytes),
    }
}

/// The word for a kind of body.
pub(super) fn kind_word(kind: ContentKind) -> &'static str {
    kind.as_str()
}

/// A message accepted by Duly was checked then. A row that another program wrote is checked now.
pub(super) fn read_properties(text: Option<&str>, is_raw: bool) -> Result<Properties, Invalid> {
    let mut properties = Properties::default();
    let Some(text) = text else { return Ok(properties) };
    let fault = |detail: String| Invalid::new(ErrorCode::BadProperty, "properties", detail);
    let map: Map<String, Json> =
        serde_json::from_str(text).map_err(|error| fault(format!("not a JSON object: {error}")))?;
    for (name, value) in map {
        let Json::String(value) = value else {
            return Err(fault(format!("the value of {name:?} is not a string")));
        };
        if is_raw {
            properties.set(&name, &value)?;
        } else {
            properties.put(&name, &value);
        }
    }
    Ok(properties)
}

/// Properties as they are written.
pub(super) fn properties_text(properties: &Properties) -> Option<String> {
    if properties.is_empty() {
        return None;
    }
    let map: Map<String, Json> =
        properties.iter().map(|(name, value)| (name.to_owned(), Json::String(value.to_owned()))).collect();
    serde_json::to_string(&map).ok()
}

/// The retry settings of a message, as they are written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Retry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    backoff: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_ms: Option<u64>,
}

/// Reads [`retry_text`] back.
pub(super) fn read_retry(text: Option<&str>) -> Result<Option<RetryOverride>, Invalid> {
    let Some(text) = text else { return Ok(None) };
    let fault = |detail: String| Invalid::new(ErrorCode::BadRetry, "retry", detail);
    // Serde reads a list as the fields in order.
    if !text.trim_start().starts_with('{') {
        return Err(fault("it is not a JSON object".into()));
    }
    let retry: Retry = serde_json::from_str(text).map_err(|error| fault(error.to_string()))?;
    let backoff = match retry.backoff.as_deref() {
        None => None,
        Some("fixed") => Some(Backoff::Fixed),
        Some("linear") => Some(Backoff::Linear),
        Some("exponential") => Some(Backoff::Exponential),
        Some(_) => return Err(fault("a backoff is fixed, linear or exponential".into())),
    };
    Ok(Some(RetryOverride {
        attempts: retry.attempts,
        backoff,
        min: retry.min_ms.map(Duration::from_millis),
        max: retry.max_ms.map(Duration::from_millis),
    }))
}

/// The retry settings of a message, as text.
pub(super) fn retry_text(retry: &RetryOverride) -> Option<String> {
    let backoff = retry.backoff.map(Backoff::as_str);
    let ms = |span: Option<Duration>| span.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
    let retry = Retry {
        attempts: retry.attempts,
        backoff: backoff.map(str::to_owned),
        min_ms: ms(retry.min),
        max_ms: ms(retry.max),
    };
    serde_json::to_string(&retry).ok()
}

/// A try, as it is written.
#[derive(Serialize, Deserialize)]
struct StoredAttempt {
    at_ms: u64,
    outcome: String,
    #[serde(default)]
    detail: String,
}

impl From<&Attempt> for StoredAttempt {
    fn from(attempt: &Attempt) -> Self {
        Self {
            at_ms: attempt.at.as_millis(),
            outcome: attempt.outcome.as_str().to_owned(),
            detail: attempt.detail.clone(),
        }
    }
}

/// The history as it is written.
pub(super) fn history_text(history: &[Attempt]) -> Option<String> {
    if history.is_empty() {
        return None;
    }
    serde_json::to_string(&history.iter().map(StoredAttempt::from).collect::<Vec<_>>()).ok()
}

/// Reads [`history_text`] back.
pub(super) fn read_history(text: Option<&str>) -> Result<Vec<Attempt>, Invalid> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let fault = || Invalid::new(ErrorCode::BadHistory, "history", "it is not what Duly wrote there");
    let attempts: Vec<StoredAttempt> = serde_json::from_str(text).map_err(|_| fault())?;
    let read = |stored: StoredAttempt| {
        let outcome = Outcome::ALL.into_iter().find(|outcome| outcome.as_str() == stored.outcome);
        let outcome = outcome.ok_or_else(fault)?;
        Ok(Attempt::new(Timestamp::from_millis(stored.at_ms), outcome, stored.detail))
    };
    attempts.into_iter().map(read).collect()
}

/// Why a message is dead, by the word for it.
pub(super) fn reason_of(word: &str) -> Result<DeadReason, Invalid> {
    DeadReason::ALL
        .into_iter()
        .find(|reason| reason.as_str() == word)
        .ok_or_else(|| Invalid::new(ErrorCode::BadReason, "dead_reason", "it is not what Duly wrote there"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_is_an_object() {
        assert_eq!(read_retry(Some(r#" {"attempts":3}"#)).unwrap().unwrap().attempts, Some(3));
        for text in ["[3]", "[]", "3", "null", ""] {
            assert_eq!(read_retry(Some(text)).unwrap_err().path, "retry", "{text}");
        }
    }
}
