//! How a target proves who it is.

use std::{path::Path, sync::Arc};

use duly_core::Invalid;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};

/// The certificates in a PEM file; at least one.
pub(crate) fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let fault = |why: String| format!("cannot read certificates from {}: {why}", path.display());
    let all = CertificateDer::pem_file_iter(path).map_err(|why| fault(why.to_string()))?;
    let all: Result<Vec<_>, _> = all.collect();
    match all.map_err(|why| fault(why.to_string()))? {
        none if none.is_empty() => Err(fault("there is none in it".into())),
        all => Ok(all),
    }
}

/// The authorities of the system.
///
/// A system without any, or with one that cannot be read, is no fault here: a target whose certificate does not check out is
/// told apart when it is met.
pub(crate) fn of_the_system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

/// Trusts `roots` and these besides.
pub(crate) fn trusting(
    mut roots: RootCertStore,
    besides: &[CertificateDer<'static>],
) -> Result<ClientConfig, Invalid> {
    let fault = |why: rustls::Error| Invalid::new("bad_sink", "ca", format!("TLS cannot be set up: {why}"));
    for certificate in besides {
        roots.add(certificate.clone()).map_err(fault)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(fault)?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
