//! Where Duly is, and what it takes to be let in.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body_util::Full;
use rustls::{ClientConfig, RootCertStore, pki_types::pem::PemObject};
use url::Url;

use crate::cli::Failure;

/// The address of a Duly, with what is needed to talk to it.
#[derive(Clone)]
pub struct Target {
    url: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Option<Arc<ClientConfig>>,
    host_header: HeaderValue,
    prefix: String,
    token: Option<HeaderValue>,
}

impl Target {
    /// Checks the address; `token` goes along with every call, `ca` are the only roots an https server may have.
    pub fn new(url: &str, token: Option<&str>, ca: Option<&Path>) -> Result<Self, Failure> {
        let parsed = Url::parse(url).map_err(|e| {
            Failure::usage(format!("{url:?} is not a URL ({e}): write http://127.0.0.1:7380"))
        })?;
        let tls = match parsed.scheme() {
            "http" => None,
            "https" => Some(Arc::new(tls(ca)?)),
            other => {
                let words = format!("{url:?} begins with {other}: it must be http:// or https://");
                return Err(Failure::usage(words));
            }
        };
        let (Some(host), Some(port)) = (parsed.host_str(), parsed.port_or_known_default()) else {
            return Err(Failure::usage(format!("{url:?} names no host: write http://127.0.0.1:7380")));
        };
        if parsed.username() != "" || parsed.password().is_some() {
            return Err(Failure::usage("the URL carries a password: use --token or DULY_TOKEN_FILE instead"));
        }
        let authority = parsed.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let host_header = HeaderValue::from_str(&authority)
            .map_err(|_| Failure::usage(format!("{authority:?} cannot be a host name")))?;
        Ok(Self {
            url: format!("{}://{authority}{}", parsed.scheme(), parsed.path().trim_end_matches('/')),
            // An IPv6 address stands in brackets in a URL, and without them everywhere else.
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            tls,
            host_header,
            prefix: parsed.path().trim_end_matches('/').to_owned(),
            token: token.map(bearer).transpose()?,
        })
    }

    /// As people write it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A request for `path`, with its host, its token and its kind of body.
    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.prefix))
            .header(header::HOST, &self.host_header)
            .header(header::USER_AGENT, concat!("duly/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        request.body(Full::new(body)).map_err(|e| Failure::usage(format!("cannot ask for {path:?}: {e}")))
    }
}

fn bearer(token: &str) -> Result<HeaderValue, Failure> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        // The token itself stays out of the words.
        .map_err(|_| Failure::usage("the token holds characters that no token has: is it the right file?"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Text as one part of a path: what has a meaning in URLs is written as `%..`.
pub fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // `.` and `..` would be steps in the path rather than names.
    let dots = matches!(text, "." | "..");
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~') || (byte == b'.' && !dots) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn tls(ca: Option<&Path>) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = ca {
        let fault = |e: &dyn std::fmt::Display| {
            Failure::failed(format!("cannot read roots from {}: {e}", file.display()))
        };
        for cert in rustls::pki_types::CertificateDer::pem_file_iter(file).map_err(|e| fault(&e))? {
            roots.add(cert.map_err(|e| fault(&e))?).map_err(|e| fault(&e))?;
        }
        if roots.is_empty() {
            return Err(fault(&"there is no certificate in it; it must be PEM"));
        }
    } else {
        // One odd certificate in the machine's store must not keep us from the others.
        for cert in rustls_native_certs::load_native_certs().certs {
            let _ = roots.add(cert);
        }
        if roots.is_empty() {
            let words = "this machine has no root certificates: name yours with --ca FILE";
            return Err(Failure::failed(words));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Failure::failed(format!("cannot set up TLS: {e}")))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_cannot_leave_its_place_in_the_path() {
        assert_eq!(segment("order.paid-1_~"), "order.paid-1_~");
        assert_eq!(segment("a/b?c#d e%"), "a%2Fb%3Fc%23d%20e%25");
        assert_eq!(segment(".."), "%2E%2E");
        assert_eq!(segment("ü"), "%C3%BC");
    }

    #[test]
    fn an_address_is_checked_before_anything_is_sent() {
        for (url, says) in [
            ("127.0.0.1:7380", "not a URL"),
            ("ftp://host", "http:// or https://"),
            ("http://user:secret@host", "--token"),
        ] {
            let failure = Target::new(url, None, None).err().unwrap();
            assert!(failure.words.contains(says), "{url}: {}", failure.words);
            assert!(!failure.words.contains("secret"));
        }
    }

    #[test]
    fn a_path_before_the_calls_is_kept() {
        let target = Target::new("http://host/duly/", Some("t"), None).unwrap();
        let request = target.request(Method::GET, "/v1/stats", Bytes::new()).unwrap();
        assert_eq!(request.uri(), "/duly/v1/stats");
        assert_eq!(request.headers()["host"], "host");
        assert!(request.headers()["authorization"].is_sensitive());
        assert_eq!(target.url(), "http://host/duly");
    }

    #[test]
    fn an_ipv6_address_is_dialled_without_its_brackets() {
        let target = Target::new("http://[::1]:7380", None, None).unwrap();
        assert_eq!((target.host.as_str(), target.port), ("::1", 7380));
        assert_eq!(target.url(), "http://[::1]:7380");
    }
}
