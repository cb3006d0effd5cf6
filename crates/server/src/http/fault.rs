//! Every error that a client can see, in one table.

use axum::response::{IntoResponse, Response};
use duly::{Error, Invalid, State, StoreErrorKind};
use http::{HeaderValue, StatusCode, header};

use crate::wire::{ItemError, Problem};

/// The code, its status, its title. `docs/reference/errors.md` explains each, and a test keeps the two in step.
pub const CODES: &[(&str, u16, &str)] = &[
    ("bad_json", 400, "The body is not the JSON that is expected here"),
    ("bad_query", 400, "The query of the URL is not understood"),
    ("bad_cursor", 400, "This cursor was not given by a list"),
    ("half_a_body", 400, "The connection ended in the middle of the body"),
    ("unauthorized", 401, "A token is needed"),
    ("forbidden", 403, "The token does not allow this"),
    ("id_not_allowed", 403, "The token may not choose this id"),
    ("cross_origin", 403, "Another web page may not call this server"),
    ("bad_host", 403, "The Host header does not name this server"),
    ("not_found", 404, "There is no such message"),
    ("no_such_sink", 404, "There is no such sink"),
    ("no_such_route", 404, "There is no such address"),
    ("method_not_allowed", 405, "This address does not take this method"),
    ("body_timeout", 408, "The body did not come in time"),
    ("id_conflict", 409, "The id is known with other content"),
    ("too_late", 409, "The message is in a state that does not allow this"),
    ("body_too_large", 413, "The body is larger than the limit"),
    ("batch_too_large", 413, "The batch has more items than the limit"),
    ("bad_encoding", 415, "The body is compressed"),
    ("bad_field", 422, "A field is missing, unknown or of the wrong type"),
    ("bad_id", 422, "This is not an id"),
    ("bad_sink", 422, "This is not the name of a sink"),
    ("bad_topic", 422, "This is not a topic"),
    ("bad_tag", 422, "This is not a tag"),
    ("bad_key", 422, "This is not a key"),
    ("bad_body", 422, "The body of the message cannot be read"),
    ("bad_property", 422, "This is not a property"),
    ("reserved_property", 422, "This property is set by Duly or would delay twice"),
    ("too_many_properties", 422, "The message has more properties than the limit"),
    ("bad_delay", 422, "This is not a span of time"),
    ("too_long", 422, "The span of time is longer than allowed here"),
    ("bad_time", 422, "This is not a point in time"),
    ("two_bodies", 422, "More than one of body, json and body_base64"),
    ("two_times", 422, "More than one of delay, deliver_at and level"),
    ("no_time", 422, "A time is needed"),
    ("too_far", 422, "The time is further away than the limit"),
    ("bad_priority", 422, "This is not a priority"),
    ("bad_retry", 422, "These retries cannot be meant"),
    ("bad_receipt", 422, "This is not a receipt"),
    ("wrong_queue", 422, "The receipt is of another queue"),
    ("bad_state", 422, "This is not a state"),
    ("bad_selection", 422, "Give either ids or a filter"),
    ("bad_span", 422, "The span of the forecast cannot be meant"),
    ("too_many", 422, "More at once than the limit"),
    ("unknown_sink", 422, "No such sink is configured"),
    ("topic_not_allowed", 422, "The sink does not take this topic"),
    ("reserved_topic", 422, "This topic is the name of something that Duly keeps itself"),
    ("unknown_level", 422, "No such level is configured"),
    ("too_many_pending", 429, "As many messages wait as the limit allows"),
    ("too_many_topics", 429, "The built-in queue has as many topics as the limit allows"),
    ("too_many_in_flight", 429, "As many messages of the queue are in flight as the limit allows"),
    ("internal", 500, "A fault of the server"),
    ("store_damaged", 500, "What is stored cannot be trusted"),
    ("busy", 503, "Too much at once for the memory set aside"),
    ("too_many_connections", 503, "As many connections are open as the limit allows"),
    ("shutting_down", 503, "The server is stopping"),
    ("delivery_stopped", 503, "Delivery has stopped by a fault of the server"),
    ("store_unavailable", 503, "The store cannot be reached"),
    ("store_closed", 503, "The store is closed"),
    ("sink_unreachable", 503, "The sink cannot deliver now"),
    ("store_unanswered", 504, "The store gave no answer: it may have been done"),
    ("disk_full", 507, "There is no room for new messages"),
    // Never an answer to a call: of the configuration, the library and rows that others wrote.
    ("bad_limit", 500, "This limit cannot be meant"),
    ("bad_lease", 500, "This lease cannot be meant"),
    ("bad_timeout", 500, "This timeout cannot be meant"),
    ("bad_scan", 500, "These sweeps cannot be meant"),
    ("bad_address", 500, "This address of a store is not understood"),
    ("no_store", 500, "No store was given"),
    ("reserved_sink", 500, "This name belongs to the built-in queue"),
    ("sink_twice", 500, "Two sinks have the same name"),
    ("only_accepts", 500, "This process only accepts messages"),
    ("bad_kind", 500, "This is not a kind of content"),
    ("bad_status", 500, "This is not a status"),
    ("bad_history", 500, "These attempts cannot be read"),
    ("bad_reason", 500, "This is not a reason"),
];

/// When to come again after a 429 or 503, in seconds.
pub(super) const RETRY_AFTER_SECONDS: u16 = 1;

/// Bytes of a detail or a path. Errors repeat what was sent, and a batch has thousands of them.
const WORDS_MAX: usize = 1_000;

fn cut(text: impl Into<String>) -> String {
    let mut text = text.into();
    if text.len() > WORDS_MAX {
        text.truncate(text.floor_char_boundary(WORDS_MAX));
        text.push('…');
    }
    text
}

/// Why a call was not done, as told to the client.
#[derive(Debug, Clone)]
pub struct Fault {
    code: &'static str,
    detail: String,
    path: Option<String>,
    state: Option<State>,
}

/// What a handler gives.
pub(super) type Answer<T> = Result<T, Fault>;

impl Fault {
    /// A fault of one of the [`CODES`], in words that say what happened, to what, and what to do now.
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        debug_assert!(CODES.iter().any(|(known, ..)| *known == code), "{code} is not in the table");
        Self { code, detail: cut(detail), path: None, state: None }
    }

    /// A fault at a place of the input.
    pub(super) fn at(code: &'static str, path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { path: Some(cut(path)), ..Self::new(code, detail) }
    }

    /// No message of this id is known.
    pub(super) fn not_found(id: &str) -> Self {
        Self::new(
            "not_found",
            format!(
                "no message {id:?} is known: it was never accepted, was purged, or ended longer ago than retention"
            ),
        )
    }

    /// The message stands where this cannot be done.
    pub(super) fn too_late(id: &str, state: State) -> Self {
        let detail = format!("message {id:?} is {}: this can only be done while it waits", state.as_str());
        Self { state: Some(state), ..Self::new("too_late", detail) }
    }

    #[cfg(test)]
    pub(super) fn code(&self) -> &'static str {
        self.code
    }

    fn entry(&self) -> (u16, &'static str) {
        let known = CODES.iter().find(|(code, ..)| *code == self.code);
        known.map_or((500, "A fault of the server"), |(_, status, title)| (*status, title))
    }

    /// In the place of one item of a batch.
    pub(super) fn item(self) -> ItemError {
        ItemError { code: self.code.into(), detail: self.detail, path: self.path }
    }

    /// As the body of an answer.
    pub fn problem(&self) -> Problem {
        let (status, title) = self.entry();
        Problem {
            about: format!("/errors#{}", self.code),
            title: title.into(),
            status,
            code: self.code.into(),
            detail: self.detail.clone(),
            path: self.path.clone(),
            state: self.state.map(|state| state.as_str().into()),
        }
    }
}

impl From<Invalid> for Fault {
    fn from(invalid: Invalid) -> Self {
        Self {
            code: invalid.code,
            path: Some(cut(invalid.path)).filter(|path| !path.is_empty()),
            ..Self::new("bad_field", invalid.detail)
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(invalid) => invalid.into(),
            Error::IdConflict(id) => Self::at(
                "id_conflict",
                "id",
                format!(
                    "a message {:?} with other content is known; nothing changed: choose another id, or cancel it first",
                    id.as_str()
                ),
            ),
            Error::Store(error) => {
                let code = match error.kind {
                    StoreErrorKind::Unavailable => "store_unavailable",
                    StoreErrorKind::Unanswered => "store_unanswered",
                    StoreErrorKind::Full => "disk_full",
                    StoreErrorKind::TooMany => "too_many_pending",
                    StoreErrorKind::TooManyInFlight => "too_many_in_flight",
                    StoreErrorKind::TooLarge => "body_too_large",
                    StoreErrorKind::Damaged => "store_damaged",
                    StoreErrorKind::Closed => "store_closed",
                };
                Self::new(code, error.what)
            }
            unanswered @ Error::Unanswered { .. } => Self::new("store_unanswered", unanswered.to_string()),
            Error::Closed => {
                Self::new("shutting_down", "this server is stopping; send it to another or try again soon")
            }
            stopped @ Error::Stopped(_) => Self::new("delivery_stopped", stopped.to_string()),
            other => Self::new("internal", other.to_string()),
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let problem = self.problem();
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // Of a damaged store there was one shout already, and every call would add another.
        if status == StatusCode::INTERNAL_SERVER_ERROR && self.code != "store_damaged" {
            tracing::error!(code = self.code, detail = self.detail, "a call failed");
        }
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let kind = HeaderValue::from_static("application/problem+json");
        let mut response = (status, [(header::CONTENT_TYPE, kind)], body).into_response();
        let headers = response.headers_mut();
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, RETRY_AFTER_SECONDS.into());
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // The rest of the body is perhaps not read: then the connection cannot be used again.
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_with_too_many_in_flight_is_told_to_wait() {
        let error = duly::StoreError::new(StoreErrorKind::TooManyInFlight, "acknowledge some");
        let response = Fault::from(Error::Store(error)).into_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(response.headers().contains_key(header::RETRY_AFTER));
    }

    /// The codes in the sources, wherever they are made.
    fn written(folder: &std::path::Path, codes: &mut std::collections::BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                written(&path, codes);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                for begin in ["Invalid::new(", "Fault::new(", "Fault::at("] {
                    let made = text.split(begin).skip(1).map(str::trim_start);
                    let code = |rest: &str| rest.strip_prefix('"')?.split('"').next().map(str::to_owned);
                    let is_code = |code: &String| code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
                    codes.extend(made.filter_map(code).filter(is_code));
                }
            }
        }
    }

    #[test]
    fn every_code_that_is_made_anywhere_is_in_the_table() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut codes = std::collections::BTreeSet::new();
        for name in ["core", "stores", "sinks", "duly", "server"] {
            written(&crates.join(name).join("src"), &mut codes);
        }
        assert!(codes.len() > 40, "{codes:?}");
        codes.retain(|made| !CODES.iter().any(|(code, ..)| made == code));
        assert!(codes.is_empty(), "not in the table: {codes:?}");
    }

    #[test]
    fn every_code_has_its_page() {
        every_code_is_on(include_str!("../../../../docs/reference/errors.md"));
        every_code_is_on(include_str!("../../../../docs/reference/errors.zh-CN.md"));
    }

    fn every_code_is_on(page: &str) {
        for (code, status, _) in CODES {
            assert!(page.contains(&format!("\n## {code}\n")), "{code} has no page");
            assert!(
                page.contains(&format!("\n## {code}\n\n**{status}**")),
                "{code}: the page names another status"
            );
        }
        let known = |line: &str| CODES.iter().any(|(code, ..)| line == *code);
        for line in page.lines().filter_map(|line| line.strip_prefix("## ")) {
            assert!(known(line), "{line} is not in the table");
        }
    }
}
