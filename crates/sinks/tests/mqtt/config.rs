//! What the configuration of this sink may say. What all sinks have in common is in `tests/configuration`.

use duly_sinks::SinkConfig;

fn faults(settings: &str) -> Vec<String> {
    let config: SinkConfig = toml::from_str(&format!("kind = 'mqtt'\n{settings}")).unwrap();
    config.check().into_iter().map(|fault| fault.path).collect()
}

#[test]
fn every_fault_is_told_at_once() {
    assert_eq!(faults(""), ["url"]);
    assert_eq!(faults("url = 'mqtt://a'\nversion = '3.1.1'\ndrop_headers = true\nqos = 2"), [""; 0]);
    let all = "url = 'http://x'\nca = '/no/such.pem'\nrequest_timeout = 0\nqos = 0\ndrop_headers = true";
    assert_eq!(faults(all), ["url", "ca", "request_timeout", "qos", "drop_headers"]);
    assert_eq!(faults("url = 'mqtt://a,b:1'\nclient_id = 'x'\nclean_start = false"), [""; 0]);
    assert_eq!(
        faults("url = 'mqtt://a'\nclient_id = ''\nclient_cert = 'x'"),
        ["client_cert", "client_key", "client_id"]
    );
    let lost = "url = 'mqtt://a'\nclean_start = false\nqos = 2";
    assert_eq!(faults(lost), ["clean_start", "clean_start"], "no name, and copies taken for what is new");
    let error = toml::from_str::<SinkConfig>("kind = 'mqtt'\nversion = '4'").unwrap_err().to_string();
    assert!(error.contains("3.1.1"), "{error}");
}

#[tokio::test]
async fn the_doctor_names_what_would_be_lost_without_a_word() {
    let inspect = async |settings: &str| {
        let config = format!("kind = 'mqtt'\nurl = 'mqtt://127.0.0.1'\n{settings}");
        let config: SinkConfig = toml::from_str(&config).unwrap();
        let clock = std::sync::Arc::new(duly::SystemClock::new().unwrap());
        config.inspect(clock, std::time::Duration::from_secs(60), &[]).await
    };
    assert_eq!(inspect("version = '5'").await, []);
    let remarks = inspect("version = '3.1.1'").await;
    assert!(remarks.len() == 1 && remarks[0].remedy.contains("version"), "{remarks:?}");
}
