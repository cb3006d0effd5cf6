//! The text protocol of core NATS, as far as a publisher needs it.

use std::{fmt::Write, io};

use async_nats::HeaderMap;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use bytes::{BufMut, BytesMut};
use nkeys::KeyPair;
use serde::Deserialize;
use serde_json::json;

use super::super::settings::Login;

/// A server's line is not longer than this; INFO of a large cluster is the longest.
const LINE_MAX: usize = 1024 * 1024;
/// How the server begins when a message may not go where it should.
const VIOLATION: &str = "Permissions Violation for Publish to ";
const HEADERS_BEGIN: &str = "NATS/1.0\r\n";
pub(super) const PING: &[u8] = b"PING\r\n";
pub(super) const PONG: &[u8] = b"PONG\r\n";

/// A server that does not say how much it takes is not taken to take nothing.
fn no_limit() -> usize {
    usize::MAX
}

/// The INFO line of the server.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ServerInfo {
    #[serde(default = "no_limit")]
    pub(super) max_payload: usize,
    #[serde(default)]
    pub(super) tls_required: bool,
    #[serde(default)]
    pub(super) headers: bool,
    #[serde(default)]
    nonce: Option<String>,
}

/// A line of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Ping,
    Pong,
    /// `-ERR`, in its words.
    Error(String),
    /// Of no interest to a publisher.
    Other,
}

/// Takes the next whole line from the front of `read`.
pub(super) fn next(read: &mut BytesMut) -> io::Result<Option<Line>> {
    let Some(end) = read.iter().position(|byte| *byte == b'\n') else {
        return match read.len() {
            0..LINE_MAX => Ok(None),
            _ => Err(io::Error::other("a line without an end: this is no NATS server")),
        };
    };
    let line = read.split_to(end + 1);
    let line = String::from_utf8_lossy(&line);
    let (word, rest) = line.trim_end().split_once(' ').unwrap_or((line.trim_end(), ""));
    Ok(Some(match word.to_ascii_uppercase().as_str() {
        "PING" => Line::Ping,
        "PONG" => Line::Pong,
        "-ERR" => {
            let words = rest.trim();
            let inner = words.strip_prefix('\'').and_then(|words| words.strip_suffix('\''));
            Line::Error(inner.unwrap_or(words).to_owned())
        }
        "+OK" | "INFO" => Line::Other,
        _ => return Err(io::Error::other(format!("{word:?} is nothing that a publisher is told"))),
    }))
}

/// The greeting of a server, in the first line that it sends.
pub(super) fn info(line: &str) -> io::Result<ServerInfo> {
    let text = line.strip_prefix("INFO ").ok_or_else(|| io::Error::other("this is no NATS server"))?;
    serde_json::from_str(text).map_err(io::Error::other)
}

/// The subject of which the server says that we may not publish to it.
pub(in super::super) fn denied(words: &str) -> Option<String> {
    let quoted = words.strip_prefix(VIOLATION)?;
    Some(unquoted(quoted).unwrap_or_else(|| quoted.to_owned()))
}

/// The text between quotes, as Go writes them.
fn unquoted(text: &str) -> Option<String> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    let mut signs = inner.chars();
    let mut plain = String::with_capacity(inner.len());
    while let Some(sign) = signs.next() {
        let digits = match (sign, if sign == '\\' { signs.next()? } else { sign }) {
            ('\\', 'x') => 2,
            ('\\', 'u') => 4,
            ('\\', 'U') => 8,
            (_, sign) => {
                plain.push(sign);
                continue;
            }
        };
        let code: String = signs.by_ref().take(digits).collect();
        plain.push(char::from_u32(u32::from_str_radix(&code, 16).ok()?)?);
    }
    Some(plain)
}

/// CONNECT, and a PING whose answer says that we are in.
pub(super) fn connect(info: &ServerInfo, login: &Login, is_secure: bool) -> io::Result<BytesMut> {
    let mut options = json!({
        "verbose": false, "pedantic": false, "tls_required": is_secure, "name": "duly", "lang": "rust",
        "version": env!("CARGO_PKG_VERSION"), "protocol": 1, "headers": true, "echo": false,
    });
    match login {
        Login::Nobody => {}
        Login::Token(token) => options["auth_token"] = json!(token),
        Login::User(user, password) => {
            options["user"] = json!(user);
            options["pass"] = json!(password);
        }
        Login::Creds(text) => {
            let unusable = || io::Error::other("the credentials cannot be used");
            let (jwt, seed) = credentials(text).ok_or_else(unusable)?;
            let key = KeyPair::from_seed(seed).map_err(|_| unusable())?;
            let nonce = info.nonce.as_deref().unwrap_or_default();
            let signature = key.sign(nonce.as_bytes()).map_err(|_| unusable())?;
            options["jwt"] = json!(jwt);
            options["sig"] = json!(BASE64_URL_SAFE_NO_PAD.encode(signature));
        }
    }
    let mut out = BytesMut::from(format!("CONNECT {options}\r\n").as_bytes());
    out.extend_from_slice(PING);
    Ok(out)
}

/// The JWT and the seed of a `.creds` file: each the line after a `-----BEGIN …-----`.
fn credentials(text: &str) -> Option<(&str, &str)> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut after_begin = || {
        lines.find(|line| line.starts_with("---") && line.contains("BEGIN"))?;
        lines.next()
    };
    Some((after_begin()?, after_begin()?))
}

/// The headers as they are sent.
pub(super) fn headers(headers: &HeaderMap) -> String {
    let mut text = HEADERS_BEGIN.to_owned();
    for (name, values) in headers.iter() {
        for value in values {
            let _ = write!(text, "{name}: {value}\r\n");
        }
    }
    text.push_str("\r\n");
    text
}

/// HPUB.
pub(super) fn publish(out: &mut BytesMut, subject: &str, headers: &str, body: &[u8]) {
    let line = format!("HPUB {subject} {} {}\r\n", headers.len(), headers.len() + body.len());
    out.reserve(line.len() + headers.len() + body.len() + 2);
    out.put_slice(line.as_bytes());
    out.put_slice(headers.as_bytes());
    out.put_slice(body);
    out.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_whole_and_errors_in_their_words() {
        let mut read = BytesMut::from(&b"PONG\r\n-ERR 'Stale Connection'\r\nPI"[..]);
        assert_eq!(next(&mut read).unwrap(), Some(Line::Pong));
        assert_eq!(next(&mut read).unwrap(), Some(Line::Error("Stale Connection".into())));
        assert_eq!(next(&mut read).unwrap(), None);
        read.extend_from_slice(b"NG\r\nHTTP/1.1 200 OK\r\n");
        assert_eq!(next(&mut read).unwrap(), Some(Line::Ping));
        assert!(next(&mut read).is_err(), "somebody else");
    }

    #[test]
    fn a_server_that_names_no_limit_has_none() {
        let info: ServerInfo = serde_json::from_str("{}").unwrap();
        assert_eq!(info.max_payload, usize::MAX);
    }

    #[test]
    fn a_denied_subject_is_read_as_go_quotes_it() {
        let of = |subject: &str| denied(&format!("{VIOLATION}{subject}"));
        assert_eq!(of(r#""orders.new""#).as_deref(), Some("orders.new"));
        assert_eq!(of(r#""a\"b\\c.订单\u200b""#).as_deref(), Some("a\"b\\c.订单\u{200b}"));
        assert_eq!(denied("Stale Connection"), None);
    }

    #[test]
    fn credentials_are_found_between_their_lines() {
        let text = "-----BEGIN NATS USER JWT-----\nabc\n------END NATS USER JWT------\n\nIMPORTANT\n\
                    -----BEGIN USER NKEY SEED-----\nSU1\n------END USER NKEY SEED------\n";
        assert_eq!(credentials(text), Some(("abc", "SU1")));
        assert_eq!(credentials("abc"), None);
    }
}
