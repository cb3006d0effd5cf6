//! The configuration of a webhook, as used.

use std::{sync::Arc, time::Duration};

use duly_core::{ErrorCode, Invalid};
use http::{HeaderMap, Method};
use rustls::pki_types::CertificateDer;
use url::Url;

use super::{
    address::{AddressRule, Network},
    config::{AllowPrivate, Permanent, WebhookConfig},
    headers,
    pattern::Pattern,
    sign::{self, Key},
};
use crate::tls::{self, Identity};

/// The longest that one request may be given.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// The most messages of one call, and the most requests to one origin at the same time.
const PARALLEL_MAX: usize = 1024;
/// A shorter text is not masked: removing it from every text would make texts unreadable.
const SECRET_LEN_MIN: usize = 4;
/// A part of an address so long is taken for a token.
const TOKEN_LEN_MIN: usize = 16;

/// Everything set, everything checked.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) base: Option<Url>,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) keys: Vec<Key>,
    pub(super) allowed: Vec<Pattern>,
    pub(super) addresses: AddressRule,
    pub(super) permanent: Permanent,
    pub(super) timeout: Duration,
    pub(super) per_origin: usize,
    pub(super) authorities: Vec<CertificateDer<'static>>,
    /// Shown to the sink's own `url` alone.
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) secrets: Secrets,
}

/// Secrets, which are masked in every text.
#[derive(Clone)]
pub(super) struct Secrets(Vec<String>);

impl Secrets {
    fn of(config: &WebhookConfig, base: Option<&Url>) -> Self {
        let all = config.headers.values().chain(&config.secret.0).map(|hidden| hidden.reveal().trim());
        // What stands in front, as in "Bearer …" or "whsec_…", is no secret; what follows it is, also alone.
        let words = all.flat_map(|text| {
            [Some(text), text.split_once(' ').map(|(_, rest)| rest.trim()), text.strip_prefix(sign::PREFIX)]
        });
        let words = words.flatten().filter(|text| text.len() >= SECRET_LEN_MIN);
        // Servers like to repeat the path that they do not know, and some paths are passwords.
        let behind_host = base.map_or("", |base| &base[url::Position::BeforePath..]);
        let parts = behind_host.split(['/', '?', '&', '=']).filter(|part| part.len() >= TOKEN_LEN_MIN);
        let mut texts: Vec<_> = words.chain(parts).map(str::to_owned).collect();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self(texts)
    }

    /// `text` without them: a target may well send back what it was sent.
    pub(super) fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Settings {
    /// Checks what is written, and reports every fault at once.
    pub(super) fn read(config: &WebhookConfig) -> Result<Self, Vec<Invalid>> {
        let mut faults = Faults(Vec::new());
        if config.url.is_none() && config.allow_urls.is_empty() {
            faults.add("url", "set url, or allow_urls if every message brings its own address");
        }
        if config.url.is_none() && !config.headers.is_empty() {
            let detail = "these are sent to the sink's own url alone, and it has none; a message brings its own headers as \
                          properties";
            faults.add("headers", detail);
        }
        let base = config.url.as_ref().and_then(|url| faults.keep("url", base(url.reveal())));
        let settings = Self {
            method: faults.keep("method", method(config.method.as_deref())).unwrap_or(Method::POST),
            headers: fixed_headers(config, &mut faults),
            keys: faults.keep_all("secret", &config.secret.0, |secret| Key::parse(secret.reveal())),
            allowed: faults.keep_all("allow_urls", &config.allow_urls, |text| Pattern::parse(text)),
            addresses: match &config.allow_private {
                AllowPrivate::All => AddressRule::Any,
                AllowPrivate::None => AddressRule::PublicAnd(Vec::new()),
                AllowPrivate::Networks(list) => {
                    AddressRule::PublicAnd(
                        faults.keep_all("allow_private", list, |text| Network::parse(text)),
                    )
                }
            },
            permanent: config.permanent.clone(),
            timeout: config.request_timeout(),
            per_origin: config.per_origin(),
            authorities: match config.ca.as_deref() {
                Some(path) => faults.keep("ca", tls::authorities(path)).unwrap_or_default(),
                None => Vec::new(),
            },
            identity: identity(config, base.as_ref(), &mut faults),
            secrets: Secrets::of(config, base.as_ref()),
            base,
        };
        if let Permanent::These(list) = &config.permanent {
            let range = |status: &u16| {
                if (400..500).contains(status) { Ok(()) } else { Err("a status is 400 to 499") }
            };
            faults.keep_all("permanent", list, range);
        }
        if settings.timeout.is_zero() || settings.timeout > REQUEST_TIMEOUT_MAX {
            faults
                .add("request_timeout", format!("longer than nothing, and at most {REQUEST_TIMEOUT_MAX:?}"));
        }
        if !(1..=PARALLEL_MAX).contains(&config.batch()) {
            faults.add("parallel", format!("1 to {PARALLEL_MAX} messages of one call"));
        }
        if !(1..=PARALLEL_MAX).contains(&settings.per_origin) {
            faults.add("per_origin", format!("1 to {PARALLEL_MAX} requests at the same time"));
        }
        if faults.0.is_empty() { Ok(settings) } else { Err(faults.0) }
    }
}

struct Faults(Vec<Invalid>);

impl Faults {
    fn add(&mut self, path: impl Into<String>, detail: impl Into<String>) {
        self.0.push(Invalid::new(ErrorCode::BadSink, path, detail));
    }

    fn keep<T>(&mut self, path: &str, read: Result<T, impl Into<String>>) -> Option<T> {
        read.map_err(|detail| self.add(path, detail)).ok()
    }

    fn keep_all<T, U, E: Into<String>>(
        &mut self,
        path: &str,
        list: &[T],
        read: impl Fn(&T) -> Result<U, E>,
    ) -> Vec<U> {
        let each = list.iter().enumerate();
        each.filter_map(|(index, item)| self.keep(&format!("{path}[{index}]"), read(item))).collect()
    }
}

/// The words do not repeat the address: it may hold a token.
fn base(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|why| format!("not a URL: {why}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("a webhook's url begins with https:// or http://".into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a user name in a url ends up in logs; write headers.authorization instead".into());
    }
    if url.fragment().is_some() {
        return Err("what follows # is never sent; leave it out".into());
    }
    Ok(url)
}

fn method(text: Option<&str>) -> Result<Method, String> {
    match text {
        None | Some("POST") => Ok(Method::POST),
        Some("PUT") => Ok(Method::PUT),
        Some(other) => Err(format!("{other:?} is neither POST nor PUT")),
    }
}

/// By what we prove who we are to `url`, and to no address that a message names.
fn identity(config: &WebhookConfig, base: Option<&Url>, faults: &mut Faults) -> Option<Arc<Identity>> {
    let own = tls::identity(config.client_cert.as_deref(), config.client_key.as_deref());
    let own = own.map_err(|(path, detail)| faults.add(path, detail)).ok().flatten();
    let is_set = [("client_cert", &config.client_cert), ("client_key", &config.client_key)];
    let is_set = is_set.iter().filter(|(_, file)| file.is_some()).map(|(path, _)| *path);
    if config.url.is_none() {
        let detail = "it is shown to the sink's own url alone, and it has none";
        is_set.for_each(|path| faults.add(path, detail));
    } else if base.is_some_and(|base| base.scheme() != "https") {
        let detail = "it is of no use without TLS: write https:// in url";
        is_set.for_each(|path| faults.add(path, detail));
    }
    own.map(Arc::new)
}

fn fixed_headers(config: &WebhookConfig, faults: &mut Faults) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (text, hidden) in &config.headers {
        let path = format!("headers.{text}");
        let name = faults.keep(&path, headers::name(text));
        let value = faults.keep(&path, headers::value(hidden.reveal()));
        if let (Some(name), Some(mut value)) = (name, value) {
            value.set_sensitive(true);
            if map.insert(name, value).is_some() {
                faults.add(path, "the same header twice: case does not tell them apart");
            }
        }
    }
    map
}
