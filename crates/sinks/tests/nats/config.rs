//! What the configuration of this sink may say. What all sinks have in common is in `tests/configuration`.

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
fn the_password_of_an_address_is_not_shown() {
    let config: SinkConfig = toml::from_str("kind = 'nats'\nurl = 'nats://me:secret@127.0.0.1'").unwrap();
    assert!(!format!("{config:?}").contains("secret"));
}
