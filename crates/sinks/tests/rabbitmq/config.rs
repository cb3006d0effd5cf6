//! What the configuration of this sink may say. What all sinks have in common is in `tests/configuration`.

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
fn several_nodes_are_a_list_of_one_kind() {
    assert_eq!(faults("url = ['amqp://a', 'amqp://b:5673/v']"), [""; 0]);
    assert_eq!(faults("url = []"), ["url"]);
    assert_eq!(faults("url = ['amqp://a', 'http://b']"), ["url"]);
    assert_eq!(faults("url = ['amqp://a', 'amqps://b']"), ["url"], "by TLS, or not");
}
