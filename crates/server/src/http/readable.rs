//! Refuses requests that no route can read.

use duly::ErrorCode;
use http::{HeaderMap, header};
use percent_encoding::percent_decode_str;

use super::fault::{ApiResult, Fault};

/// Refuses an undecodable path or a body in an unsupported encoding.
pub(super) fn checked(path: &str, headers: &HeaderMap) -> ApiResult<()> {
    utf8(path).and_then(|()| plain(headers))
}

fn utf8(path: &str) -> ApiResult<()> {
    match percent_decode_str(path).decode_utf8() {
        Ok(_) => Ok(()),
        Err(_) => Err(Fault::new(
            ErrorCode::NoSuchRoute,
            format!("{path:?} is not UTF-8; write names as UTF-8, then with %"),
        )),
    }
}

fn plain(headers: &HeaderMap) -> ApiResult<()> {
    let identity = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
    match headers.get_all(header::CONTENT_ENCODING).iter().find(|value| !identity(value)) {
        None => Ok(()),
        Some(value) => Err(Fault::new(
            ErrorCode::BadEncoding,
            format!("Content-Encoding is {value:?}; send the body as it is, without"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_utf_8_once_its_escapes_are_undone() {
        for good in ["/", "/v1/queues/%E9%A2%98/receive", "/v1/messages/100%", "/v1/messages/%zz", "/%2F%"] {
            assert!(utf8(good).is_ok(), "{good}");
        }
        for bad in ["/v1/messages/%FF", "/v1/queues/%e9%a2/receive"] {
            assert_eq!(utf8(bad).unwrap_err().code(), "no_such_route", "{bad}");
        }
    }

    #[test]
    fn only_plain_bodies_are_read() {
        let with = |value: &'static str| {
            let headers = [(header::CONTENT_ENCODING, http::HeaderValue::from_static(value))];
            plain(&headers.into_iter().collect())
        };
        assert!(plain(&HeaderMap::new()).is_ok());
        assert!(with("Identity").is_ok());
        assert_eq!(with("gzip").unwrap_err().code(), "bad_encoding");
    }
}
