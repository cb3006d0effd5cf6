//! Certificates of an authority that nobody knows.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::{NoClientAuth, WebPkiClientVerifier, danger::ClientCertVerifier},
    },
};

/// A client's certificate of an authority of its own, as PEM files that are there as long as this is.
#[derive(Debug)]
pub struct ClientCertificate {
    folder: TempDir,
}

impl ClientCertificate {
    /// One that nobody else has.
    #[expect(clippy::new_without_default, reason = "each is another")]
    pub fn new() -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "authority of clients");
        let authority_key = KeyPair::generate().unwrap();
        let authority_cert = authority.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(authority, authority_key);
        let mut client = CertificateParams::new(vec!["client".to_owned()]).unwrap();
        client.distinguished_name.push(DnType::CommonName, "client");
        client.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        let key = KeyPair::generate().unwrap();
        let cert = client.signed_by(&key, &issuer).unwrap();
        let made = Self { folder: tempfile::tempdir().unwrap() };
        fs::write(made.authority(), authority_cert.pem()).unwrap();
        fs::write(made.file("client.pem"), cert.pem()).unwrap();
        fs::write(made.file("client.key"), key.serialize_pem()).unwrap();
        made
    }

    /// The authority, which a server must trust.
    pub fn authority(&self) -> PathBuf {
        self.file("authority.pem")
    }

    /// The settings of a sink or a source that shows it.
    pub fn settings(&self) -> String {
        let (cert, key) = (self.file("client.pem"), self.file("client.key"));
        format!("client_cert = '{}'\nclient_key = '{}'", cert.display(), key.display())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// A self-signed certificate of 127.0.0.1 and its key, as PEM files that are there as long as this is.
#[derive(Debug)]
pub struct SelfSigned {
    folder: TempDir,
}

impl SelfSigned {
    /// One that nobody else has.
    #[expect(clippy::new_without_default, reason = "each is another")]
    pub fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let own = Self { folder: tempfile::tempdir().unwrap() };
        fs::write(own.certificate(), made.cert.pem()).unwrap();
        fs::write(own.key(), made.signing_key.serialize_pem()).unwrap();
        own
    }

    /// The file of the certificate, which is its own authority.
    pub fn certificate(&self) -> String {
        self.folder.path().join("cert.pem").display().to_string()
    }

    /// The file of its key.
    pub fn key(&self) -> String {
        self.folder.path().join("key.pem").display().to_string()
    }

    /// The settings of a sink that shows it.
    pub fn settings(&self) -> String {
        format!("client_cert = '{}'\nclient_key = '{}'", self.certificate(), self.key())
    }
}

/// Proves to be each of `names` by an authority of its own, speaks one of `protocols`, best first; and that authority, as PEM.
pub fn acceptor(names: &[&str], protocols: &[&str]) -> (TlsAcceptor, String) {
    acceptor_of(names, protocols, Arc::new(NoClientAuth))
}

/// The same for clients alone that show a certificate of the authority in the file `clients`.
pub fn acceptor_for(names: &[&str], protocols: &[&str], clients: &Path) -> (TlsAcceptor, String) {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(clients).unwrap()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    acceptor_of(names, protocols, verifier)
}

fn acceptor_of(
    names: &[&str],
    protocols: &[&str],
    clients: Arc<dyn ClientCertVerifier>,
) -> (TlsAcceptor, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let leaf_key = KeyPair::generate().unwrap();
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let leaf = CertificateParams::new(names).unwrap().signed_by(&leaf_key, &issuer).unwrap();

    let key = PrivateKeyDer::try_from(leaf_key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    (TlsAcceptor::from(Arc::new(config)), authority.pem())
}
