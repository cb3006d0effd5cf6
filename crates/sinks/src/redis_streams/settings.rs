//! The configuration of a sink into Redis Streams, as used.

use std::{fs, path::Path, time::Duration};

use duly_core::{ErrorCode, Invalid};
use redis_link::{Address, ClientIdentity};

use super::config::RedisStreamsConfig;
use crate::tls;

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
    pub(super) identity: Option<ClientIdentity>,
}

impl Settings {
    /// Checks what is written, and reports every fault at once.
    pub(super) fn read(config: &RedisStreamsConfig) -> Result<Self, Vec<Invalid>> {
        let mut faults = Vec::new();
        let mut fault =
            |path: &str, detail: String| faults.push(Invalid::new(ErrorCode::BadSink, path, detail));
        let address = match &config.url {
            None => Err("set url, such as redis://127.0.0.1:6379".into()),
            Some(url) => Address::parse(url.reveal()),
        };
        let address = address.map_err(|detail| fault("url", detail)).ok();
        let authorities = config
            .ca
            .as_deref()
            .and_then(|path| authorities(path).map_err(|detail| fault("ca", detail)).ok());
        let identity = identity(config).map_err(|(path, detail)| fault(path, detail)).ok().flatten();
        let is_plain = address.as_ref().is_some_and(|address| !address.is_secure());
        let for_tls =
            [("ca", &config.ca), ("client_cert", &config.client_cert), ("client_key", &config.client_key)];
        for (path, _) in for_tls.iter().filter(|(_, file)| file.is_some() && is_plain) {
            fault(path, "it is of no use without TLS: write rediss:// in url".into());
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
            Some(address) if faults.is_empty() => Ok(Self {
                address,
                max_len: config.max_len,
                max_age,
                remember,
                timeout,
                authorities,
                identity,
            }),
            _ => Err(faults),
        }
    }
}

/// The file of the authorities, if it is one.
fn authorities(path: &Path) -> Result<Vec<u8>, String> {
    tls::authorities(path)?;
    read(path)
}

/// The files of our certificate and its key, if they are that and belong together. A fault names the setting it is about.
fn identity(config: &RedisStreamsConfig) -> Result<Option<ClientIdentity>, (&'static str, String)> {
    let (cert, key) = (config.client_cert.as_deref(), config.client_key.as_deref());
    tls::identity(cert, key)?;
    let (Some(cert), Some(key)) = (cert, key) else { return Ok(None) };
    let cert = read(cert).map_err(|detail| ("client_cert", detail))?;
    let key = read(key).map_err(|detail| ("client_key", detail))?;
    Ok(Some(ClientIdentity { cert, key }))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|why| format!("cannot read {}: {why}", path.display()))
}
