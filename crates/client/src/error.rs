//! Why a call failed, sorted by what the caller does next.

use std::{fmt, io};

use duly_core::ErrorCode;
use http::StatusCode;

use crate::wire::Problem;

/// Why a call did not do what it was asked. The variants are sorted by what to do next; [`is_transient`](Self::is_transient) and
/// [`is_maybe_done`](Self::is_maybe_done) answer the two questions of a retry.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address, a token or an argument that cannot be used. Nothing was sent: mend it.
    #[error("{0}")]
    Invalid(String),
    /// The root certificates cannot be read, or there are none. Nothing was sent: mend the file or the machine.
    #[error("{0}")]
    Certificates(String),
    /// No connection: nobody listens there, or the network does not reach it. Nothing was sent: try again later, or correct the address.
    #[error("cannot reach Duly at {url}: {source}")]
    Unreachable {
        /// The server that was called.
        url: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The other end speaks TLS and was called without it, or the reverse: call it with the other scheme. If `instead` is `http`, the
    /// TLS handshake failed and nothing was sent. If it is `https`, the request had gone out before the answer turned out not to be
    /// HTTP: most likely that is TLS and nothing was done, but a broken server or proxy looks the same
    /// ([`is_maybe_done`](Self::is_maybe_done)).
    #[error("{url} does not speak {}: call it with {instead}://", if *.instead == "https" { "plain HTTP" } else { "TLS" })]
    WrongScheme {
        /// The server that was called.
        url: String,
        /// `http` or `https`: the scheme to call it with.
        instead: &'static str,
    },
    /// The server's certificate is not trusted. Nothing was sent: trust its root, or find out who answers there.
    #[error("{url} is not trusted: {detail}")]
    Untrusted {
        /// The server that was called.
        url: String,
        /// The fault of its certificate.
        detail: String,
    },
    /// The connection broke or the server fell silent: the call may have been done. Make it again; a message with the same id is
    /// accepted once.
    #[error("no answer from {url}: {detail}")]
    NoAnswer {
        /// The server that was called.
        url: String,
        /// How the connection failed.
        detail: String,
    },
    /// The server refused the call: its status and its code say why.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The answer is not that of a Duly server, or of a much newer one. Check what listens there.
    #[error("unexpected answer from {url}: {detail}")]
    UnexpectedAnswer {
        /// The server that was called.
        url: String,
        /// The unexpected part of its answer.
        detail: String,
    },
}

/// An answer that is not a success.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The stable code; `None` if this client does not know it, or if a proxy answered.
    pub code: Option<ErrorCode>,
    /// All that the server said; `None` if it was not Duly that answered.
    pub problem: Option<Box<Problem>>,
    /// What happened, to what, and what to do now.
    pub detail: String,
}

impl Error {
    /// The error for an answer that is not a success.
    pub(crate) fn refused(status: StatusCode, body: &[u8], url: &str) -> Self {
        let refusal = match serde_json::from_slice::<Problem>(body) {
            Ok(problem) => Refusal {
                status: status.as_u16(),
                code: ErrorCode::parse(&problem.code),
                detail: problem.detail.clone(),
                problem: Some(Box::new(problem)),
            },
            Err(_) => {
                let text = String::from_utf8_lossy(body);
                let line = text.lines().next().unwrap_or_default().chars().take(200).collect::<String>();
                let detail = format!("{url} answered {status}: {line}");
                let detail = detail.trim_end_matches([':', ' ']).to_owned();
                Refusal { status: status.as_u16(), code: None, problem: None, detail }
            }
        };
        Self::Refused(Box::new(refusal))
    }

    /// The stable code of a refusal.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused(refusal) => refusal.code,
            _ => None,
        }
    }

    /// The HTTP status of a refusal.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused(refusal) => Some(refusal.status),
            _ => None,
        }
    }

    /// Whether the same call may succeed a little later, without any change.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::NoAnswer { .. } => true,
            Self::Refused(refusal) => matches!(refusal.status, 429 | 502 | 503 | 504 | 507),
            _ => false,
        }
    }

    /// Whether the call may have been done all the same.
    pub fn is_maybe_done(&self) -> bool {
        match self {
            Self::NoAnswer { .. } | Self::UnexpectedAnswer { .. } => true,
            // Without TLS there is no handshake: the scheme shows in the answer, after the request was sent.
            Self::WrongScheme { instead, .. } => *instead == "https",
            // Of the server, or of a proxy that had passed the call on.
            Self::Refused(refusal) => matches!(refusal.status, 500 | 502 | 504),
            _ => false,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        let Some(problem) = &self.problem else { return Ok(()) };
        if let Some(path) = &problem.path {
            write!(f, " (at {path})")?;
        }
        write!(f, " [{}]", problem.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &str) -> Error {
        Error::refused(StatusCode::from_u16(status).unwrap(), body.as_bytes(), "http://duly")
    }

    #[test]
    fn the_detail_and_the_code_of_a_problem_are_told() {
        let body = r#"{"type":"t","title":"T","status":409,"code":"too_late","detail":"a is delivered","state":"delivered"}"#;
        let error = of(409, body);
        assert_eq!(error.to_string(), "a is delivered [too_late]");
        assert_eq!(error.code(), Some(ErrorCode::TooLate));
        let newer = body.replace("too_late", "of_a_newer_server");
        assert_eq!((of(409, &newer).code(), of(409, &newer).status()), (None, Some(409)));
        assert_eq!(of(409, &newer).to_string(), "a is delivered [of_a_newer_server]");
    }

    #[test]
    fn an_answer_of_somebody_else_is_shown_in_one_line() {
        let error = of(502, "<html>\nbad gateway");
        assert_eq!(error.to_string(), "http://duly answered 502 Bad Gateway: <html>");
        assert!(error.is_transient() && error.is_maybe_done());
    }
}
