//! The configuration of a sink into RocketMQ, as used.

use std::{sync::Arc, time::Duration};

use duly_core::{ErrorCode, Invalid};
use rustls::ClientConfig;

use super::{config::RocketmqConfig, sign::Signer};
use crate::tls;

/// The longest that one call may be given.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// Everything set, everything checked.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) namesrv: Vec<String>,
    pub(super) signer: Option<Signer>,
    pub(super) tls: Option<Arc<ClientConfig>>,
    pub(super) timeout: Duration,
    pub(super) accept_weaker: bool,
}

impl Settings {
    /// Checks what is written, and reports every fault at once.
    pub(super) fn read(config: &RocketmqConfig) -> Result<Self, Vec<Invalid>> {
        let mut faults = Vec::new();
        let mut fault =
            |path: &str, detail: &str| faults.push(Invalid::new(ErrorCode::BadSink, path, detail));
        let namesrv = config.namesrv.addresses();
        if config.namesrv.0.is_empty() {
            fault("namesrv", "set namesrv, such as 127.0.0.1:9876");
        } else if namesrv.is_none() {
            fault("namesrv", "it cannot be used: write host:port, several with commas between or as a list");
        }
        let namesrv = namesrv.unwrap_or_default();
        let signer = match (&config.access_key, &config.secret_key) {
            (Some(key), Some(secret)) => Some(Signer::new(key, secret.reveal())),
            (None, None) => None,
            (given, _) => {
                let missing = if given.is_some() { "secret_key" } else { "access_key" };
                fault(missing, "access_key and secret_key belong together: set both, or none");
                None
            }
        };
        let for_tls =
            [("ca", &config.ca), ("client_cert", &config.client_cert), ("client_key", &config.client_key)];
        for (path, _) in for_tls.iter().filter(|(_, file)| file.is_some() && !config.tls) {
            fault(path, "it is of no use without TLS: write tls = true");
        }
        let own = tls::identity(config.client_cert.as_deref(), config.client_key.as_deref());
        let own = own.map_err(|(path, detail)| fault(path, &detail)).ok().flatten();
        let besides = match config.ca.as_deref().map(tls::authorities).transpose() {
            Ok(besides) => besides.unwrap_or_default(),
            Err(detail) => {
                fault("ca", &detail);
                Vec::new()
            }
        };
        let timeout = config.request_timeout();
        if timeout.is_zero() || timeout > REQUEST_TIMEOUT_MAX {
            fault("request_timeout", &format!("longer than nothing, and at most {REQUEST_TIMEOUT_MAX:?}"));
        }
        let proving = || tls::proving(tls::of_the_system(), &besides, own.as_ref());
        let tls = match config.tls.then(proving).transpose() {
            Ok(tls) => tls.map(Arc::new),
            Err(invalid) => {
                faults.push(invalid);
                None
            }
        };
        if !faults.is_empty() {
            return Err(faults);
        }
        let accept_weaker = config.accept_weaker.unwrap_or(true);
        Ok(Self { namesrv, signer, tls, timeout, accept_weaker })
    }
}
