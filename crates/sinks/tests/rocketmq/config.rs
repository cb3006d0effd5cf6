//! What the configuration of this sink may say. What all sinks have in common is in `tests/configuration`.

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
