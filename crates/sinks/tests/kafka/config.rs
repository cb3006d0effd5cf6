//! What the configuration of this sink may say. What all sinks have in common is in `tests/configuration`.

use duly_sinks::SinkConfig;

fn faults(settings: &str) -> Vec<String> {
    let config: SinkConfig = toml::from_str(&format!("kind = 'kafka'\n{settings}")).unwrap();
    config.check().into_iter().map(|fault| fault.path).collect()
}

#[test]
fn every_fault_is_told_at_once() {
    assert_eq!(faults(""), ["brokers"]);
    assert_eq!(
        faults("brokers = 'a:9092, [::1]:9092'\nuser = 'me'\npassword = 'x'\nmechanism = 'plain'"),
        [""; 0]
    );
    let all = "brokers = 'here'\nuser = 'me'\nca = '/no/such.pem'\nrequest_timeout = 5";
    assert_eq!(faults(all), ["brokers", "password", "ca", "request_timeout"]);
    for bad in ["", "a", "a:0", "a:b", ":9092", "a:9092,", "kafka://a:9092", "me:x@a:9092"] {
        assert_eq!(faults(&format!("brokers = '{bad}'")), ["brokers"], "{bad:?}");
    }
    assert_eq!(faults("brokers = 'a:1'\npassword = 'x'\nmechanism = 'plain'"), ["user", "mechanism"]);
    assert_eq!(faults("brokers = 'a:1'\ntls = true\nca = '/no/such.pem'").last().unwrap(), "ca");
}

/// The files are for OpenSSL. rustls, which the other sinks use, knows no key of P-521.
#[cfg(feature = "kafka-tls")]
#[test]
fn a_key_that_only_openssl_knows_is_accepted() {
    let folder = format!("{}/tests/kafka", env!("CARGO_MANIFEST_DIR"));
    let settings = format!(
        "brokers = 'a:1'\ntls = true\nclient_cert = '{folder}/p521.pem'\nclient_key = '{folder}/p521.key'"
    );
    assert_eq!(faults(&settings), [""; 0]);
    let settings = settings.replace("p521.key", "p521.pem");
    assert_eq!(faults(&settings), ["client_key"], "a certificate is no key");
}

#[cfg(not(feature = "kafka-tls"))]
#[test]
fn a_build_without_tls_says_so() {
    let config = "kind = 'kafka'\nbrokers = 'a:1'\ntls = true\nuser = 'me'\npassword = 'x'\nmechanism = 'scram-sha-256'\n\
                  client_cert = 'a.pem'\nclient_key = 'a.key'";
    let config: SinkConfig = toml::from_str(config).unwrap();
    let words: Vec<_> = config.check().into_iter().map(|fault| (fault.path, fault.detail)).collect();
    let paths: Vec<_> = words.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, ["mechanism", "tls", "client_cert", "client_key"]);
    assert!(words.iter().all(|(_, detail)| detail.contains("--features kafka-tls")), "{words:?}");
}
