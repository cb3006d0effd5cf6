//! Errors of the HTTP API.

use axum::response::{IntoResponse, Response};
use duly::{Error, ErrorCode, Invalid, State};
use http::{HeaderValue, StatusCode, header};

use crate::wire::{ItemError, Problem};

/// `Retry-After` of 429 and 503, in seconds.
pub(super) const RETRY_AFTER_SECONDS: u16 = 1;

/// Max bytes of a detail or a path. Errors quote the input, and a batch can have thousands of them.
const WORDS_MAX: usize = 1_000;

fn cut(text: impl Into<String>) -> String {
    let mut text = text.into();
    if text.len() > WORDS_MAX {
        text.truncate(text.floor_char_boundary(WORDS_MAX));
        text.push('…');
    }
    text
}

/// An error as the client sees it.
#[derive(Debug, Clone)]
pub struct Fault {
    code: ErrorCode,
    detail: String,
    path: Option<String>,
    state: Option<State>,
}

/// The result of a handler.
pub(super) type ApiResult<T> = Result<T, Fault>;

impl Fault {
    /// `detail` says what failed, on what, and what to do.
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { code, detail: cut(detail), path: None, state: None }
    }

    /// An error at a path of the input.
    pub(super) fn at(code: ErrorCode, path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { path: Some(cut(path)), ..Self::new(code, detail) }
    }

    /// No message of this id is known.
    pub(super) fn not_found(id: &str) -> Self {
        Self::new(
            ErrorCode::NotFound,
            format!(
                "no message {id:?} is known: it was never accepted, was purged, or ended longer ago than retention"
            ),
        )
    }

    /// The state of the message does not allow the change.
    pub(super) fn too_late(id: &str, state: State) -> Self {
        let detail = format!("message {id:?} is {}: this can only be done while it waits", state.as_str());
        Self { state: Some(state), ..Self::new(ErrorCode::TooLate, detail) }
    }

    #[cfg(test)]
    pub(super) fn code(&self) -> ErrorCode {
        self.code
    }

    /// As the result of one item of a batch.
    pub(super) fn item(self) -> ItemError {
        ItemError { code: self.code.as_str().into(), detail: self.detail, path: self.path }
    }

    /// About how many bytes it has as the result of one item.
    pub(super) fn item_bytes(&self) -> usize {
        serde_json::to_vec(&self.clone().item()).map_or(0, |text| text.len()) + 16
    }

    /// As the body of a response.
    pub fn problem(&self) -> Problem {
        Problem {
            about: self.code.page(),
            title: self.code.title().into(),
            status: self.code.status(),
            code: self.code.as_str().into(),
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
            ..Self::new(ErrorCode::BadField, invalid.detail)
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid(invalid) => invalid.into(),
            Error::IdConflict(id) => Self::at(
                ErrorCode::IdConflict,
                "id",
                format!(
                    "a message {:?} with other content is known; nothing changed: choose another id, or cancel it first",
                    id.as_str()
                ),
            ),
            Error::Store(error) => Self::new(error.kind.code(), error.what),
            Error::Unanswered { id, error } => Self::new(
                ErrorCode::StoreUnanswered,
                format!("message {id} may have been accepted: {error}; send it again with this id"),
            ),
            Error::Closed => Self::new(
                ErrorCode::ShuttingDown,
                "this server is stopping; send it to another or try again soon",
            ),
            stopped @ Error::Stopped(_) => Self::new(ErrorCode::DeliveryStopped, stopped.to_string()),
            other => Self::new(ErrorCode::Internal, other.to_string()),
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let problem = self.problem();
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // The damage was logged once; do not log it again for every call.
        if status == StatusCode::INTERNAL_SERVER_ERROR && self.code != ErrorCode::StoreDamaged {
            tracing::error!(code = %self.code, detail = self.detail, "request failed");
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
            // The rest of the body may be unread, so the connection cannot be reused.
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
    use duly::StoreErrorKind;

    use super::*;

    #[test]
    fn a_queue_with_too_many_in_flight_is_told_to_wait() {
        let error = duly::StoreError::new(StoreErrorKind::TooManyInFlight, "acknowledge some");
        let response = Fault::from(Error::Store(error)).into_response();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(response.headers().contains_key(header::RETRY_AFTER));
    }

    #[test]
    fn every_code_has_its_page() {
        every_code_is_on(include_str!("../../../../docs/reference/errors.md"));
        every_code_is_on(include_str!("../../../../docs/reference/errors.zh-CN.md"));
    }

    fn every_code_is_on(page: &str) {
        for code in ErrorCode::ALL {
            let status = code.status();
            assert!(page.contains(&format!("\n## {code}\n")), "{code} has no page");
            assert!(
                page.contains(&format!("\n## {code}\n\n**{status}**")),
                "{code}: the page names another status"
            );
        }
        let known = |line: &str| ErrorCode::parse(line).is_some();
        for line in page.lines().filter_map(|line| line.strip_prefix("## ")) {
            assert!(known(line), "{line} is not in the table");
        }
    }
}
