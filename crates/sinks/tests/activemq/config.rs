//! What the configuration of this sink may say. What all sinks have in common is in `tests/configuration`.

use duly_sinks::SinkConfig;

fn faults(settings: &str) -> Vec<(String, String)> {
    let config: SinkConfig = toml::from_str(&format!("kind = 'activemq'\n{settings}")).unwrap();
    config.check().into_iter().map(|fault| (fault.path, fault.detail)).collect()
}

fn paths(settings: &str) -> Vec<String> {
    faults(settings).into_iter().map(|(path, _)| path).collect()
}

#[test]
fn every_fault_is_told_at_once() {
    assert_eq!(paths(""), ["url"]);
    assert_eq!(paths("url = 'stomp://a'\ndestination = 'topic'"), [""; 0]);
    assert_eq!(
        paths("url = 'http://x'\nca = '/no/such.pem'\nrequest_timeout = 0"),
        ["url", "ca", "request_timeout"]
    );
    assert_eq!(paths("url = 'stomp+ssl://a,b:1'\nclient_key = '/no/such.pem'"), ["client_cert"]);
    assert_eq!(paths("url = 'stomp://a,,b'"), ["url"]);
    let error = toml::from_str::<SinkConfig>("kind = 'activemq'\ndestination = 'q'").unwrap_err().to_string();
    assert!(error.contains("queue") && error.contains("topic"), "{error}");
}

#[test]
fn amqp_is_refused_with_words_that_say_what_to_do() {
    for url in ["amqp10://host", "amqp://host"] {
        let [(path, detail)] = &faults(&format!("url = '{url}'"))[..] else { panic!("one fault") };
        assert_eq!(path, "url");
        assert!(detail.contains("no AMQP 1.0 yet") && detail.contains("stomp://"), "{detail}");
    }
}

#[tokio::test]
async fn the_doctor_names_what_would_be_lost_without_a_word() {
    let inspect = async |settings: &str| {
        let config = format!("kind = 'activemq'\nurl = 'stomp://127.0.0.1'\n{settings}");
        let config: SinkConfig = toml::from_str(&config).unwrap();
        let clock = std::sync::Arc::new(duly::SystemClock::new().unwrap());
        config.inspect(clock, std::time::Duration::from_secs(60), &[]).await
    };
    assert_eq!(inspect("destination = 'queue'").await, []);
    let remarks = inspect("destination = 'topic'").await;
    assert!(remarks.len() == 1 && remarks[0].remedy.contains("durable"), "{remarks:?}");
}
