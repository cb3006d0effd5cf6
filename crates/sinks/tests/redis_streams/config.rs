//! What the configuration of this sink may say. What all sinks have in common is in `tests/configuration`.

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
