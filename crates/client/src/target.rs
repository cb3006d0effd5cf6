//! Where Duly is, and what it takes to be let in.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, header};
use http_body_util::Full;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::{ClientConfig, RootCertStore, pki_types::pem::PemObject};
use url::Url;

use crate::Error;

/// The address of a Duly, with what is needed to talk to it.
#[derive(Clone)]
pub(crate) struct Target {
    url: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Whether it is called over TLS.
    is_secure: bool,
    /// How, once that is known: the roots of this machine are read for the first connection.
    tls: OnceLock<Arc<ClientConfig>>,
    host_header: HeaderValue,
    prefix: String,
    token: Option<HeaderValue>,
}

/// The address without user and password, fit to be shown.
fn without_user(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    match host.rsplit_once('@') {
        Some((_, host)) if scheme.is_empty() => format!("{host}{path}"),
        Some((_, host)) => format!("{scheme}://{host}{path}"),
        None => url.to_owned(),
    }
}

impl Target {
    /// Checks the address.
    pub(crate) fn new(url: &str) -> Result<Self, Error> {
        let parsed = Url::parse(url).map_err(|e| {
            let why = match e {
                // Its own words are those of browsers.
                url::ParseError::RelativeUrlWithoutBase => {
                    "it does not begin with http:// or https://".into()
                }
                other => other.to_string(),
            };
            Error::Invalid(format!(
                "{:?} is not a URL ({why}): write http://127.0.0.1:7380",
                without_user(url)
            ))
        })?;
        let is_secure = match parsed.scheme() {
            "http" => false,
            "https" => true,
            other => {
                let words =
                    format!("{:?} begins with {other}: it must be http:// or https://", without_user(url));
                return Err(Error::Invalid(words));
            }
        };
        let (Some(host), Some(port)) = (parsed.host_str(), parsed.port_or_known_default()) else {
            return Err(Error::Invalid(format!("{url:?} names no host: write http://127.0.0.1:7380")));
        };
        if parsed.username() != "" || parsed.password().is_some() {
            let detail = "the URL carries a password: call with a token instead";
            return Err(Error::Invalid(detail.to_owned()));
        }
        let authority = parsed.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let host_header = HeaderValue::from_str(&authority)
            .map_err(|_| Error::Invalid(format!("{authority:?} cannot be a host name")))?;
        Ok(Self {
            url: format!("{}://{authority}{}", parsed.scheme(), parsed.path().trim_end_matches('/')),
            // An IPv6 address stands in brackets in a URL, and without them everywhere else.
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            is_secure,
            tls: OnceLock::new(),
            host_header,
            prefix: parsed.path().trim_end_matches('/').to_owned(),
            token: None,
        })
    }

    /// The token that goes along with every call.
    pub(crate) fn set_token(&mut self, token: &str) -> Result<(), Error> {
        self.token = Some(bearer(token)?);
        Ok(())
    }

    /// The only roots that an https server may have.
    pub(crate) fn set_roots(&mut self, file: &Path) -> Result<(), Error> {
        self.tls = OnceLock::from(Arc::new(tls(Some(file))?));
        Ok(())
    }

    /// How TLS is spoken; `None` if it is not.
    pub(crate) fn tls(&self) -> Result<Option<Arc<ClientConfig>>, Error> {
        if !self.is_secure {
            return Ok(None);
        }
        if let Some(known) = self.tls.get() {
            return Ok(Some(known.clone()));
        }
        let machine = Arc::new(tls(None)?);
        Ok(Some(self.tls.get_or_init(|| machine).clone()))
    }

    /// As people write it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Something else than a Duly server answered.
    pub(crate) fn unexpected(&self, detail: impl Into<String>) -> Error {
        Error::UnexpectedAnswer { url: self.url.clone(), detail: detail.into() }
    }

    /// A request for `path`, with its host, its token and its kind of body.
    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Error> {
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
        request.body(Full::new(body)).map_err(|e| Error::Invalid(format!("cannot ask for {path:?}: {e}")))
    }
}

fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        // The token itself stays out of the words.
        .map_err(|_| {
            Error::Invalid("the token holds characters that no token has: is it the right file?".to_owned())
        })?;
    value.set_sensitive(true);
    Ok(value)
}

/// What [`segment`] escapes. A dot stands for itself except in `.` and `..`.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~').remove(b'.');

/// Text as one segment of a path: every character that has a meaning in URLs is escaped as `%..`.
pub fn segment(text: &str) -> String {
    match text {
        // Unescaped, they would be steps in the path.
        "." => "%2E".to_owned(),
        ".." => "%2E%2E".to_owned(),
        _ => utf8_percent_encode(text, &ESCAPED).to_string(),
    }
}

fn tls(ca: Option<&Path>) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    if let Some(file) = ca {
        let fault = |e: &dyn std::fmt::Display| {
            Error::Certificates(format!("cannot read roots from {}: {e}", file.display()))
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
            return Err(Error::Certificates("this machine has no root certificates: name yours".to_owned()));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Certificates(format!("cannot set up TLS: {e}")))?;
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
            ("127.0.0.1:7380", "not a URL (it does not begin with http:// or https://)"),
            ("ftp://host", "http:// or https://"),
            ("ftp://user:secret@host", "http:// or https://"),
            ("http://user:secret@host:port", "not a URL"),
            ("http://user:secret@host", "a token"),
        ] {
            let error = Target::new(url).err().unwrap();
            assert!(matches!(error, Error::Invalid(_)), "{url}: {error:?}");
            assert!(error.to_string().contains(says), "{url}: {error}");
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[test]
    fn a_path_before_the_calls_is_kept() {
        let mut target = Target::new("http://host/duly/").unwrap();
        target.set_token("t").unwrap();
        let request = target.request(Method::GET, "/v1/stats", Bytes::new()).unwrap();
        assert_eq!(request.uri(), "/duly/v1/stats");
        assert_eq!(request.headers()["host"], "host");
        assert!(request.headers()["authorization"].is_sensitive());
        assert_eq!(target.url(), "http://host/duly");
    }

    #[test]
    fn an_ipv6_address_is_dialled_without_its_brackets() {
        let target = Target::new("http://[::1]:7380").unwrap();
        assert_eq!((target.host.as_str(), target.port), ("::1", 7380));
        assert_eq!(target.url(), "http://[::1]:7380");
    }
}
