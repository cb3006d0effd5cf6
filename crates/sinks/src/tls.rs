//! How a target proves who it is, and how we prove who we are.

use std::{path::Path, sync::Arc};

use duly_core::Invalid;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
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

/// A client certificate: the chain, the client's own first, and its key.
pub(crate) struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// Reads `client_cert` and `client_key`, two PEM files that come together or not at all. A fault names the setting it is about.
#[cfg(any(feature = "rabbitmq", feature = "activemq", feature = "mqtt", feature = "nats"))]
pub(crate) fn identity(
    client_cert: Option<&Path>,
    client_key: Option<&Path>,
) -> Result<Option<Identity>, (&'static str, String)> {
    let (cert, key) = match (client_cert, client_key) {
        (Some(cert), Some(key)) => (cert, key),
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(("client_key", "it is missing: client_cert needs its key".into())),
        (None, Some(_)) => {
            return Err(("client_cert", "it is missing: client_key needs its certificate".into()));
        }
    };
    let chain = authorities(cert).map_err(|detail| ("client_cert", detail))?;
    let unread =
        |why: rustls::pki_types::pem::Error| format!("cannot read a key from {}: {why}", key.display());
    let key = PrivateKeyDer::from_pem_file(key).map_err(|why| ("client_key", unread(why)))?;
    let own = Identity { chain, key };
    // A key that does not belong to the certificate is found here and not at the first connection.
    match proving(RootCertStore::empty(), &[], Some(&own)) {
        Ok(_) => Ok(Some(own)),
        Err(fault) => Err(("client_key", fault.detail)),
    }
}

/// Trusts `roots` and these besides.
pub(crate) fn trusting(
    roots: RootCertStore,
    besides: &[CertificateDer<'static>],
) -> Result<ClientConfig, Invalid> {
    proving(roots, besides, None)
}

/// The same, and proves who we are to a target that asks.
pub(crate) fn proving(
    mut roots: RootCertStore,
    besides: &[CertificateDer<'static>],
    own: Option<&Identity>,
) -> Result<ClientConfig, Invalid> {
    let fault = |why: rustls::Error| Invalid::new("bad_sink", "ca", format!("TLS cannot be set up: {why}"));
    for certificate in besides {
        roots.add(certificate.clone()).map_err(fault)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(fault)?
        .with_root_certificates(roots);
    match own {
        None => Ok(builder.with_no_client_auth()),
        Some(own) => {
            let wrong = |why| Invalid::new("bad_sink", "client_cert", format!("it cannot be used: {why}"));
            builder.with_client_auth_cert(own.chain.clone(), own.key.clone_key()).map_err(wrong)
        }
    }
}
