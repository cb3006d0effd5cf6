//! The configuration of a sink into Redis Streams, as used.

use std::{path::Path, time::Duration};

use duly_core::Invalid;
use redis_link::Address;
use rustls::pki_types::{CertificateDer, pem::PemObject};

use super::config::RedisStreamsConfig;

/// The longest that one call may be given.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// How long a message is remembered whose delivery nobody recorded: longer than outages last.
const REMEMBER: Duration = Duration::from_secs(24 * 60 * 60);
/// At least this: a shorter time would be over before the next try.
const REMEMBER_MIN: Duration = Duration::from_secs(60);

/// Everything set, everything checked.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) address: Address,
    pub(super) max_len: Option<u64>,
    pub(super) max_age: Option<Duration>,
    pub(super) remember: Duration,
    pub(super) timeout: Duration,
    /// PEM.
    pub(super) authorities: Option<Vec<u8>>,
}

impl Settings {
    /// Checks what is written, and reports every fault at once.
    pub(super) fn read(config: &RedisStreamsConfig) -> Result<Self, Vec<Invalid>> {
        let mut faults = Vec::new();
        let mut fault = |path: &str, detail: String| faults.push(Invalid::new("bad_sink", path, detail));
        let address = match &config.url {
            None => Err("set url, such as redis://127.0.0.1:6379".into()),
            Some(url) => Address::parse(url.reveal()),
        };
        let address = address.map_err(|detail| fault("url", detail)).ok();
        let authorities = config
            .ca
            .as_deref()
            .and_then(|path| authorities(path).map_err(|detail| fault("ca", detail)).ok());
        if config.ca.is_some() && address.as_ref().is_some_and(|address| !address.is_secure()) {
            fault("ca", "a certificate authority is of no use without TLS: write rediss:// in url".into());
        }
        if config.max_len == Some(0) {
            fault("max_len", "at least 1; leave it out for no limit".into());
        }
        let max_age = config.max_age.map(|span| span.0);
        if max_age.is_some_and(|age| age < Duration::from_secs(1)) {
            fault("max_age", "at least a second; leave it out for no limit".into());
        }
        let remember = config.remember.map_or(REMEMBER, |span| span.0);
        if remember < REMEMBER_MIN {
            fault("remember", format!("at least {REMEMBER_MIN:?}: a message may be tried again after that"));
        }
        let timeout = config.request_timeout();
        if timeout.is_zero() || timeout > REQUEST_TIMEOUT_MAX {
            fault("request_timeout", format!("longer than nothing, and at most {REQUEST_TIMEOUT_MAX:?}"));
        }
        match address {
            Some(address) if faults.is_empty() => {
                Ok(Self { address, max_len: config.max_len, max_age, remember, timeout, authorities })
            }
            _ => Err(faults),
        }
    }
}

fn authorities(path: &Path) -> Result<Vec<u8>, String> {
    let fault = |why: String| format!("cannot read certificates from {}: {why}", path.display());
    let pem = std::fs::read(path).map_err(|why| fault(why.to_string()))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match all.map_err(|why| fault(why.to_string()))? {
        none if none.is_empty() => Err(fault("there is none in it".into())),
        _ => Ok(pem),
    }
}
