//! What the configuration may say.

use duly_sinks::SinkConfig;

fn faults(settings: &str) -> Vec<String> {
    let config: SinkConfig = toml::from_str(&format!("kind = 'rabbitmq'\n{settings}")).unwrap();
    config.check().into_iter().map(|fault| fault.path).collect()
}

#[test]
fn every_fault_is_told_at_once() {
    assert_eq!(faults(""), ["url"]);
    assert_eq!(faults("url = 'amqp://127.0.0.1'\nexchange = 'x'\ntag_in_key = true"), [""; 0]);
    let long = "x".repeat(256);
    assert_eq!(faults("url = 'amqp://127.0.0.1'\nexchange = 'amq.rabbitmq.trace'"), ["exchange"]);
    let all = format!("url = 'http://x'\nca = '/no/such.pem'\nexchange = '{long}'\nrequest_timeout = 0");
    assert_eq!(faults(&all), ["url", "ca", "exchange", "request_timeout"]);
}

#[test]
fn an_authority_without_tls_is_told_to_be_of_no_use() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&file, made.cert.pem()).unwrap();
    let ca = format!("ca = '{}'", file.display());
    assert_eq!(faults(&format!("url = 'amqp://127.0.0.1'\n{ca}")), ["ca"]);
    assert_eq!(faults(&format!("url = 'amqps://127.0.0.1'\n{ca}")), [""; 0]);
}

#[test]
fn a_client_certificate_comes_with_its_key_and_by_tls() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let made = || rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
    let (one, other) = (made(), made());
    let cert = format!("client_cert = '{}'", file("cert.pem", &one.cert.pem()));
    let key = format!("client_key = '{}'", file("key.pem", &one.signing_key.serialize_pem()));
    let wrong = format!("client_key = '{}'", file("other.pem", &other.signing_key.serialize_pem()));
    let tls = "url = 'amqps://127.0.0.1'";
    assert_eq!(faults(&format!("{tls}\n{cert}\n{key}")), [""; 0]);
    assert_eq!(faults(&format!("{tls}\n{cert}")), ["client_key"]);
    assert_eq!(faults(&format!("{tls}\n{key}")), ["client_cert"]);
    assert_eq!(faults(&format!("{tls}\n{cert}\n{wrong}")), ["client_key"], "of another certificate");
    assert_eq!(faults(&format!("url = 'amqp://127.0.0.1'\n{cert}\n{key}")), ["client_cert", "client_key"]);
}

#[test]
fn several_nodes_are_a_list_of_one_kind() {
    assert_eq!(faults("url = ['amqp://a', 'amqp://b:5673/v']"), [""; 0]);
    assert_eq!(faults("url = []"), ["url"]);
    assert_eq!(faults("url = ['amqp://a', 'http://b']"), ["url"]);
    assert_eq!(faults("url = ['amqp://a', 'amqps://b']"), ["url"], "by TLS, or not");
}

#[test]
fn passwords_are_not_shown() {
    let config: SinkConfig = toml::from_str("kind = 'rabbitmq'\nurl = 'amqp://me:secret@127.0.0.1'").unwrap();
    assert!(!format!("{config:?}").contains("secret"));
    assert_eq!(config.kind(), "rabbitmq");
    let wrong: SinkConfig = toml::from_str("kind = 'rabbitmq'\nurl = 'amqp://me:secret@host:port'").unwrap();
    assert!(!format!("{:?}", wrong.check()).contains("secret"));
}
