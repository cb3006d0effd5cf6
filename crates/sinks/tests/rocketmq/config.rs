//! What the configuration may say.

use duly_sinks::SinkConfig;

fn faults(settings: &str) -> Vec<String> {
    let config: SinkConfig = toml::from_str(&format!("kind = 'rocketmq'\n{settings}")).unwrap();
    config.check().into_iter().map(|fault| fault.path).collect()
}

#[test]
fn every_fault_is_told_at_once() {
    assert_eq!(faults(""), ["namesrv"]);
    assert_eq!(faults("namesrv = 'a:9876;b:9876, [::1]:9876'\naccess_key = 'me'\nsecret_key = 'x'"), [""; 0]);
    assert_eq!(faults("namesrv = 'a:9876'\ntls = true"), [""; 0]);
    let all = "namesrv = 'here'\naccess_key = 'me'\nca = '/no/such.pem'\nrequest_timeout = 0";
    assert_eq!(faults(all), ["namesrv", "secret_key", "ca", "ca", "request_timeout"]);
    assert_eq!(faults("namesrv = 'a:1'\nsecret_key = 'x'"), ["access_key"]);
    for bad in ["", "a", "a:0", "a:b", ":9876", "a:9876,", "http://a:9876"] {
        assert_eq!(faults(&format!("namesrv = '{bad}'")), ["namesrv"], "{bad:?}");
    }
}

#[test]
fn a_client_certificate_comes_with_its_key_and_by_tls() {
    let clients = testkit::tls::ClientCertificate::new();
    let made = clients.settings();
    let (cert, key) = made.split_once('\n').unwrap();
    let with = |more: &str| faults(&format!("namesrv = 'a:1'\n{more}"));
    assert_eq!(with(&format!("tls = true\n{made}")), [""; 0]);
    assert_eq!(with(&format!("tls = true\n{cert}")), ["client_key"]);
    assert_eq!(with(&format!("tls = true\n{key}")), ["client_cert"]);
    assert_eq!(with(&made), ["client_cert", "client_key"]);
}

#[test]
fn secrets_are_not_shown() {
    let text = "kind = 'rocketmq'\nnamesrv = 'a:1'\naccess_key = 'me'\nsecret_key = 'secret'";
    let config: SinkConfig = toml::from_str(text).unwrap();
    assert!(!format!("{config:?}").contains("secret\""));
    assert_eq!(config.kind(), "rocketmq");
}
