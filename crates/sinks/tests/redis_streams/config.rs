//! What the configuration may say.

use duly_sinks::SinkConfig;

fn faults(settings: &str) -> Vec<String> {
    let config: SinkConfig = toml::from_str(&format!("kind = 'redis_streams'\n{settings}")).unwrap();
    config.check().into_iter().map(|fault| fault.path).collect()
}

#[test]
fn every_fault_is_told_at_once() {
    assert_eq!(faults(""), ["url"]);
    assert_eq!(faults("url = 'redis://127.0.0.1'\nmax_len = 10\nmax_age = '1h'"), [""; 0]);
    let all = "url = 'http://x'\nca = '/no/such.pem'\nmax_len = 0\nmax_age = 5\nremember = '1s'\n\
               request_timeout = 0";
    assert_eq!(faults(all), ["url", "ca", "max_len", "max_age", "remember", "request_timeout"]);
}

#[test]
fn an_authority_without_tls_is_told_to_be_of_no_use() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
    std::fs::write(&file, certificate.pem()).unwrap();
    let ca = format!("ca = '{}'", file.display());
    assert_eq!(faults(&format!("url = 'redis://127.0.0.1'\n{ca}")), ["ca"]);
    assert_eq!(faults(&format!("url = 'rediss://127.0.0.1'\n{ca}")), [""; 0]);
}

#[test]
fn a_client_certificate_comes_with_its_key_and_by_tls() {
    let clients = testkit::tls::ClientCertificate::new();
    let made = clients.settings();
    let (cert, key) = made.split_once('\n').unwrap();
    let tls = "url = 'rediss://127.0.0.1'";
    assert_eq!(faults(&format!("{tls}\n{made}")), [""; 0]);
    assert_eq!(faults(&format!("{tls}\n{cert}")), ["client_key"]);
    assert_eq!(faults(&format!("{tls}\n{key}")), ["client_cert"]);
    assert_eq!(faults(&format!("url = 'redis://127.0.0.1'\n{made}")), ["client_cert", "client_key"]);
}

#[test]
fn passwords_are_not_shown() {
    let config: SinkConfig =
        toml::from_str("kind = 'redis_streams'\nurl = 'redis://me:secret@127.0.0.1'").unwrap();
    assert!(!format!("{config:?}").contains("secret"));
    assert_eq!(config.kind(), "redis_streams");
}
