//! The certificate and its key, from their files to what rustls wants.

use std::{path::Path, sync::Arc};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
};

use super::TlsFiles;

impl TlsFiles {
    /// Reads both files. A fault says which file it is about and what is wrong with it, never what stands in it.
    pub fn load(&self) -> Result<Arc<ServerConfig>, TlsFault> {
        let chain = self.chain()?;
        let key =
            PrivateKeyDer::from_pem_file(&self.key).map_err(|fault| TlsFault::key(&self.key, &fault))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|fault| TlsFault::cert(&self.cert, format!("no version of TLS fits: {fault}")))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|fault| TlsFault::pair(self, &fault))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    /// The certificates of the chain, the server's own first.
    pub fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
        let chain = CertificateDer::pem_file_iter(&self.cert)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|fault| TlsFault::cert(&self.cert, pem_words(&fault, "certificate")))?;
        if chain.is_empty() {
            return Err(TlsFault::cert(&self.cert, pem_words(&pem::Error::NoItemsFound, "certificate")));
        }
        Ok(chain)
    }
}

/// The fault of one of the two files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{words}")]
pub struct TlsFault {
    /// The setting that names the file: `cert` or `key`.
    pub setting: &'static str,
    /// Which file, what is wrong, and what would be right.
    pub words: String,
}

impl TlsFault {
    fn cert(file: &Path, words: impl std::fmt::Display) -> Self {
        Self { setting: "cert", words: format!("{}: {words}", file.display()) }
    }

    fn key(file: &Path, fault: &pem::Error) -> Self {
        Self { setting: "key", words: format!("{}: {}", file.display(), pem_words(fault, "private key")) }
    }

    fn pair(files: &TlsFiles, fault: &rustls::Error) -> Self {
        match fault {
            rustls::Error::InconsistentKeys(_) => {
                let cert = files.cert.display();
                let words = format!(
                    "this is not the key of the certificate in {cert}; name the two that belong together"
                );
                Self { setting: "key", words: format!("{}: {words}", files.key.display()) }
            }
            rustls::Error::InvalidCertificate(_) => {
                Self::cert(&files.cert, format!("the certificate cannot be used: {fault}"))
            }
            _ => {
                let words = "the key cannot be used: it must be RSA, ECDSA (P-256, P-384, P-521) or Ed25519";
                Self { setting: "key", words: format!("{}: {words}", files.key.display()) }
            }
        }
    }
}

/// Our own words: those of the reader may show a line of the file, and that may be the key.
fn pem_words(fault: &pem::Error, what: &str) -> String {
    match fault {
        pem::Error::Io(error) => format!("the file cannot be read: {error}"),
        pem::Error::NoItemsFound => format!("there is no {what} in it; it must be PEM (-----BEGIN …)"),
        pem::Error::MissingSectionEnd { .. } => {
            "the PEM ends before its -----END line: the file is cut".into()
        }
        _ => format!("this is not the PEM of a {what}"),
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;

    struct Files {
        folder: tempfile::TempDir,
    }

    impl Files {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap() }
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        }
    }

    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn a_certificate_and_its_key_are_taken() {
        let (files, (cert, key)) = (Files::new(), pair());
        let tls = TlsFiles { cert: files.write("cert.pem", &cert), key: files.write("key.pem", &key) };
        assert_eq!(tls.load().unwrap().alpn_protocols, [b"http/1.1".to_vec()]);
    }

    #[test]
    fn a_fault_names_the_file_and_shows_nothing_of_it() {
        let (files, (cert, key), (_, other)) = (Files::new(), pair(), pair());
        let cert = files.write("cert.pem", &cert);
        let secret_line = key.lines().nth(1).unwrap().to_owned();
        let fault = |cert: PathBuf, key: PathBuf| TlsFiles { cert, key }.load().unwrap_err();
        let cases = [
            (
                fault(files.folder.path().join("none.pem"), files.write("key.pem", &key)),
                "cert",
                "none.pem",
                "cannot be read",
            ),
            (fault(cert.clone(), files.folder.path().join("none.pem")), "key", "none.pem", "cannot be read"),
            (
                fault(files.write("empty.pem", ""), files.write("key.pem", &key)),
                "cert",
                "empty.pem",
                "no certificate",
            ),
            (
                fault(cert.clone(), files.write("cert-again.pem", "text")),
                "key",
                "cert-again.pem",
                "no private key",
            ),
            (fault(cert.clone(), files.write("other.pem", &other)), "key", "other.pem", "not the key of"),
            (fault(cert.clone(), files.write("cut.pem", &key[..key.len() / 2])), "key", "cut.pem", "cut"),
            (
                fault(cert, files.write("torn.pem", &key.replace("-----END", "!!!\n-----END"))),
                "key",
                "torn.pem",
                "PEM",
            ),
        ];
        for (fault, setting, file, words) in cases {
            assert_eq!(fault.setting, setting, "{fault}");
            assert!(fault.words.contains(file) && fault.words.contains(words), "{fault}");
            assert!(!fault.words.contains(&secret_line), "{fault}");
        }
    }
}
