//! The configuration of a sink into RabbitMQ, as used.

use std::{fmt, sync::Arc, time::Duration};

use duly_core::{ErrorCode, Invalid};
use lapin::{
    types::ShortString,
    uri::{AMQPScheme, AMQPUri},
};
use rustls::{ClientConfig, RootCertStore};

use super::{config::RabbitmqConfig, message};
use crate::tls;

/// The longest that one call may be given.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// Seconds after which a silent connection is asked, and given up after twice that, unless the URL says otherwise.
const HEARTBEAT: u16 = 10;
const WANTED: &str = "a URL such as amqp://user:password@127.0.0.1:5672/vhost, or amqps:// by TLS";

/// Everything set, everything checked.
#[derive(Clone)]
pub(super) struct Settings {
    /// The nodes of the broker, in the order in which they are tried; at least one.
    pub(super) uris: Vec<AMQPUri>,
    pub(super) exchange: Option<ShortString>,
    pub(super) tag_in_key: bool,
    pub(super) timeout: Duration,
    /// Whom we trust and who we are, if it goes by TLS.
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
        let mut fault =
            |path: &str, detail: String| faults.push(Invalid::new(ErrorCode::BadSink, path, detail));
        let urls = config.url.urls();
        if urls.is_empty() {
            fault("url", format!("set url: {WANTED}"));
        }
        // The words of the parser could quote the password.
        let read = |url: &String| parsed(url).ok_or_else(|| format!("it is not {WANTED}"));
        let uris: Result<Vec<AMQPUri>, _> = urls.iter().map(read).collect();
        let uris = uris.map_err(|detail| fault("url", detail)).unwrap_or_default();
        let by_tls = uris.iter().filter(|uri| uri.scheme == AMQPScheme::AMQPS).count();
        let is_secure = by_tls > 0;
        if is_secure && by_tls < uris.len() {
            fault("url", "some are amqps:// and some are not: all nodes are reached by TLS, or none".into());
        }
        let for_tls =
            [("ca", &config.ca), ("client_cert", &config.client_cert), ("client_key", &config.client_key)];
        for (key, _) in for_tls.iter().filter(|(_, file)| file.is_some() && !uris.is_empty() && !is_secure) {
            fault(key, "it is of no use without TLS: write amqps:// in url".into());
        }
        let roots = match &config.ca {
            None => Ok((tls::of_the_system(), Vec::new())),
            Some(path) => tls::authorities(path).map(|own| (RootCertStore::empty(), own)),
        };
        let roots = roots.map_err(|detail| fault("ca", detail)).ok();
        let own = tls::identity(config.client_cert.as_deref(), config.client_key.as_deref());
        let own = own.map_err(|(key, detail)| fault(key, detail)).ok().flatten();
        let tls = roots.and_then(|(roots, besides)| {
            tls::proving(roots, &besides, own.as_ref()).map_err(|why| fault("ca", why.detail)).ok()
        });
        let tls = tls.map(Arc::new).filter(|_| is_secure);
        let exchange = config.exchange.clone().map(ShortString::try_new).transpose();
        let exchange = exchange.map_err(|why| fault("exchange", why.to_string())).ok().flatten();
        if let Some(detail) = exchange.as_ref().and_then(|exchange| message::internal(exchange.as_str())) {
            fault("exchange", detail);
        }
        let timeout = config.request_timeout();
        if timeout.is_zero() || timeout > REQUEST_TIMEOUT_MAX {
            fault("request_timeout", format!("longer than nothing, and at most {REQUEST_TIMEOUT_MAX:?}"));
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Self { uris, exchange, tag_in_key: config.tag_in_key, timeout, tls })
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
