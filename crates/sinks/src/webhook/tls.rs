//! How a target proves who it is.

use std::sync::Arc;

use duly_core::Invalid;
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer};
use tokio_rustls::TlsConnector;

/// Trusts the authorities of the system, and `more`.
pub(super) fn connector(more: &[CertificateDer<'static>]) -> Result<TlsConnector, Invalid> {
    let fault = |why: rustls::Error| Invalid::new("bad_sink", "ca", format!("TLS cannot be set up: {why}"));
    let mut roots = RootCertStore::empty();
    // A system without any, or with one that cannot be read, is no fault here: a target whose certificate does not
    // check out is told apart when it is met.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for certificate in more {
        roots.add(certificate.clone()).map_err(fault)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(fault)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
