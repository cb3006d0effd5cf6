//! How a target proves who it is, and how we prove who we are.

use std::{io, path::Path, sync::Arc};

use duly_core::{ErrorCode, Invalid};
use rustls::{
    AlertDescription as Alert, ClientConfig, RootCertStore,
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

/// Never the key.
impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Identity {
    /// A key that does not belong to the certificate is found here and not at the first connection.
    fn check(&self) -> Result<(), (&'static str, String)> {
        proving(RootCertStore::empty(), &[], Some(self))
            .map_err(|fault| ("client_key", fault.detail))
            .map(drop)
    }

    /// Whether rustls can use the key.
    #[cfg(feature = "kafka")]
    fn is_known_kind(&self) -> bool {
        rustls::crypto::ring::sign::any_supported_type(&self.key).is_ok()
    }
}

/// Reads `client_cert` and `client_key`, two PEM files that come together or not at all. A fault names the setting it is about.
pub(crate) fn identity(
    client_cert: Option<&Path>,
    client_key: Option<&Path>,
) -> Result<Option<Identity>, (&'static str, String)> {
    let own = read_identity(client_cert, client_key)?;
    own.as_ref().map_or(Ok(()), Identity::check)?;
    Ok(own)
}

/// Checks `client_cert` and `client_key` for a library that reads them itself, by OpenSSL. It uses keys that rustls does not know, such as
/// those of P-521: of these, only that they can be read is checked.
#[cfg(feature = "kafka")]
pub(crate) fn check_openssl_identity(
    client_cert: Option<&Path>,
    client_key: Option<&Path>,
) -> Result<(), (&'static str, String)> {
    let is_unknown_kind = |own: Option<Identity>| own.is_some_and(|own| !own.is_known_kind());
    match identity(client_cert, client_key) {
        Err(_) if read_identity(client_cert, client_key).is_ok_and(is_unknown_kind) => Ok(()),
        checked => checked.map(drop),
    }
}

fn read_identity(
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
    Ok(Some(Identity { chain, key }))
}

/// Whether a certificate is the reason: theirs does not check out, or they refuse ours or miss one.
///
/// By TLS 1.3 a target says the latter after the client takes the connection for open, in place of its first answer. It has not acted on
/// anything by then.
pub(crate) fn is_certificate_fault(why: &rustls::Error) -> bool {
    match why {
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => true,
        rustls::Error::AlertReceived(alert) => matches!(
            alert,
            Alert::BadCertificate
                | Alert::UnsupportedCertificate
                | Alert::CertificateRevoked
                | Alert::CertificateExpired
                | Alert::CertificateUnknown
                | Alert::UnknownCA
                | Alert::AccessDenied
                | Alert::CertificateRequired
                // The signature of ours does not check out against the authority of that name.
                | Alert::DecryptError
        ),
        _ => false,
    }
}

/// The same of a connection's error, which wraps the one of TLS once or more.
pub(crate) fn is_certificate_io_fault(why: &io::Error) -> bool {
    let mut inside = why.get_ref();
    while let Some(cause) = inside {
        if let Some(why) = cause.downcast_ref() {
            return is_certificate_fault(why);
        }
        inside = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    }
    false
}

/// Speaks TLS to `host` over `stream`, if there is a configuration for it.
#[cfg(any(feature = "activemq", feature = "mqtt", feature = "nats", feature = "rocketmq"))]
pub(crate) async fn connect(
    config: Option<&Arc<ClientConfig>>,
    host: &str,
    stream: tokio::net::TcpStream,
) -> io::Result<Box<dyn crate::stream::Stream>> {
    stream.set_nodelay(true)?;
    let Some(config) = config else { return Ok(Box::new(stream)) };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = rustls::pki_types::ServerName::try_from(host).map_err(io::Error::other)?;
    Ok(Box::new(tokio_rustls::TlsConnector::from(config.clone()).connect(name, stream).await?))
}

/// Trusts `roots` and these besides, and proves who we are to a target that asks.
pub(crate) fn proving(
    mut roots: RootCertStore,
    besides: &[CertificateDer<'static>],
    own: Option<&Identity>,
) -> Result<ClientConfig, Invalid> {
    let fault =
        |why: rustls::Error| Invalid::new(ErrorCode::BadSink, "ca", format!("TLS cannot be set up: {why}"));
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
            let wrong =
                |why| Invalid::new(ErrorCode::BadSink, "client_cert", format!("it cannot be used: {why}"));
            builder.with_client_auth_cert(own.chain.clone(), own.key.clone_key()).map_err(wrong)
        }
    }
}
