//! What the configuration may say.

use duly_sinks::SinkConfig;

fn faults(settings: &str) -> Vec<String> {
    let config: SinkConfig = toml::from_str(&format!("kind = 'nats'\n{settings}")).unwrap();
    config.check().into_iter().map(|fault| fault.path).collect()
}

#[test]
fn every_fault_is_told_at_once() {
    assert_eq!(faults(""), ["url"]);
    assert_eq!(faults("url = 'nats://a,b'\ntoken = 'x'\nmode = 'core'"), [""; 0]);
    let all = "url = 'http://x'\nca = '/no/such.pem'\ncreds_file = '/no/such.creds'\nrequest_timeout = 0";
    assert_eq!(faults(all), ["url", "ca", "creds_file", "request_timeout"]);
    assert_eq!(faults("url = 'nats://ann:x@a'\ntoken = 'x'"), ["token"], "one login, and no more");
    let error = toml::from_str::<SinkConfig>("kind = 'nats'\nmode = 'jet'").unwrap_err().to_string();
    assert!(error.contains("jetstream") && error.contains("core"), "{error}");
}

#[test]
fn an_authority_without_tls_is_told_to_be_of_no_use() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&file, made.cert.pem()).unwrap();
    let ca = format!("ca = '{}'", file.display());
    assert_eq!(faults(&format!("url = 'nats://127.0.0.1'\n{ca}")), ["ca"]);
    assert_eq!(faults(&format!("url = 'tls://127.0.0.1'\n{ca}")), [""; 0]);
    let own = format!("client_cert = '{}'", file.display());
    assert_eq!(faults(&format!("url = 'tls://127.0.0.1'\n{own}")), ["client_key"], "it needs its key");
    assert_eq!(faults(&format!("url = 'nats://127.0.0.1'\n{own}")), ["client_cert", "client_key"]);
}

#[test]
fn passwords_are_not_shown() {
    for settings in ["url = 'nats://me:secret@127.0.0.1'", "url = 'nats://a'\ntoken = 'secret'"] {
        let config: SinkConfig = toml::from_str(&format!("kind = 'nats'\n{settings}")).unwrap();
        assert!(!format!("{config:?}").contains("secret"));
        assert_eq!(config.kind(), "nats");
    }
}
