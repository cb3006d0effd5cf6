//! How a target proves who it is, how we do, and which HTTP it speaks.

use std::sync::Arc;

use duly_core::Invalid;
use rustls::pki_types::CertificateDer;
use tokio_rustls::TlsConnector;

use crate::tls::{self, Identity};

/// HTTP/2, as ALPN names it.
pub(super) const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

/// Ways to secure a connection.
pub(super) struct Tls {
    /// HTTP/2 if the target offers it, otherwise HTTP/1.1.
    pub(super) any: TlsConnector,
    pub(super) http1: TlsConnector,
}

/// Trusts the authorities of the system, and `more`, and proves by `own` who we are.
pub(super) fn connectors(more: &[CertificateDer<'static>], own: Option<&Identity>) -> Result<Tls, Invalid> {
    let config = tls::proving(tls::of_the_system(), more, own)?;
    let offering = |protocols: &[&[u8]]| {
        let mut config = config.clone();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        TlsConnector::from(Arc::new(config))
    };
    Ok(Tls { any: offering(&[HTTP_2, HTTP_1]), http1: offering(&[HTTP_1]) })
}
