//! The configuration of a sink into RabbitMQ, as used.

use std::{fmt, sync::Arc, time::Duration};

use duly_core::Invalid;
use lapin::{
    types::ShortString,
    uri::{AMQPScheme, AMQPUri},
};
use rustls::{ClientConfig, RootCertStore};

use super::config::RabbitmqConfig;
use crate::tls;

/// The longest that one call may be given.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Seconds after which a silent connection is asked, and given up after twice that, unless the URL says otherwise.
const HEARTBEAT: u16 = 10;
const WANTED: &str = "a URL such as amqp://user:password@127.0.0.1:5672/vhost, or amqps:// by TLS";

/// Everything set, everything checked.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) uri: AMQPUri,
    pub(super) exchange: Option<ShortString>,
    pub(super) tag_in_key: bool,
    pub(super) timeout: Duration,
    /// Whom we trust, if it goes by TLS.
    pub(super) tls: Option<Arc<ClientConfig>>,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("exchange", &self.exchange).finish_non_exhaustive()
    }
}

impl Settings {
    /// Checks what is written, and reports every fault at once.
    pub(super) fn read(config: &RabbitmqConfig) -> Result<Self, Vec<Invalid>> {
        let mut faults = Vec::new();
        let mut fault = |path: &str, detail: String| faults.push(Invalid::new("bad_sink", path, detail));
        let uri = match &config.url {
            None => Err(format!("set url: {WANTED}")),
            // The words of the parser could quote the password.
            Some(url) => parsed(url.reveal()).ok_or_else(|| format!("it is not {WANTED}")),
        };
        let uri = uri.map_err(|detail| fault("url", detail)).ok();
        let is_secure = uri.as_ref().is_some_and(|uri| uri.scheme == AMQPScheme::AMQPS);
        if config.ca.is_some() && uri.is_some() && !is_secure {
            fault("ca", "a certificate authority is of no use without TLS: write amqps:// in url".into());
        }
        let roots = match &config.ca {
            None => Ok((tls::of_the_system(), Vec::new())),
            Some(path) => tls::authorities(path).map(|own| (RootCertStore::empty(), own)),
        };
        let roots = roots.map_err(|detail| fault("ca", detail)).ok();
        let trusting = roots
            .and_then(|(roots, own)| tls::trusting(roots, &own).map_err(|why| fault("ca", why.detail)).ok());
        let tls = trusting.map(Arc::new).filter(|_| is_secure);
        let exchange = config.exchange.clone().map(ShortString::try_new).transpose();
        let exchange = exchange.map_err(|why| fault("exchange", why.to_string())).ok().flatten();
        let timeout = config.request_timeout();
        if timeout.is_zero() || timeout > REQUEST_TIMEOUT_MAX {
            fault("request_timeout", format!("longer than nothing, and at most {REQUEST_TIMEOUT_MAX:?}"));
        }
        match uri {
            Some(uri) if faults.is_empty() => {
                Ok(Self { uri, exchange, tag_in_key: config.tag_in_key, timeout, tls })
            }
            _ => Err(faults),
        }
    }
}

fn parsed(url: &str) -> Option<AMQPUri> {
    let mut uri: AMQPUri = url.parse().ok()?;
    if uri.authority.host.is_empty() {
        return None;
    }
    // `amqp://host/` means the usual one to everybody who is not a specification.
    if uri.vhost.is_empty() {
        uri.vhost = "/".into();
    }
    uri.query.heartbeat.get_or_insert(HEARTBEAT);
    Some(uri)
}
