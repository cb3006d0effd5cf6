//! How a target proves who it is.

use std::sync::Arc;

use duly_core::Invalid;
use rustls::pki_types::CertificateDer;
use tokio_rustls::TlsConnector;

use crate::tls;

/// Trusts the authorities of the system, and `more`.
pub(super) fn connector(more: &[CertificateDer<'static>]) -> Result<TlsConnector, Invalid> {
    let mut config = tls::trusting(tls::of_the_system(), more)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
