//! The configuration, as written.

use std::time::Duration;

use duly_sinks::{
    Secret, SinkConfig,
    webhook::{AllowPrivate, Permanent},
};

fn read(settings: &str) -> Result<SinkConfig, String> {
    toml::from_str(&format!("kind = 'webhook'\n{settings}")).map_err(|error| error.to_string())
}

#[test]
fn every_setting_is_read() {
    let settings = "url = 'https://example.com/hooks'\nmethod = 'PUT'\nsecret = 'words'\n\
                    allow_urls = ['https://*.example.com']\nallow_private = ['10.0.0.0/8']\npermanent = [400, 410]\n\
                    request_timeout = '3s'\nparallel = 8\nper_origin = 9\n[headers]\nx-a = 'b'";
    let config = read(settings).unwrap();
    assert_eq!((config.kind(), config.check()), ("webhook", vec![]));
    assert_eq!((config.batch(), config.call_timeout()), (8, Duration::from_secs(3)));
    let SinkConfig::Webhook(webhook) = config else { panic!("{config:?}") };
    assert_eq!(webhook.url, Some(Secret::new("https://example.com/hooks")));
    assert_eq!(webhook.secret.0, [Secret::new("words")]);
    assert_eq!(webhook.allow_private, AllowPrivate::Networks(vec!["10.0.0.0/8".into()]));
    assert_eq!(webhook.permanent, Permanent::These(vec![400, 410]));
    assert_eq!(webhook.per_origin, Some(9));
    assert_eq!(webhook.headers["x-a"], Secret::new("b"));
}

#[test]
fn what_is_left_out_has_its_default() {
    let config = read("url = 'https://example.com'").unwrap();
    assert_eq!((config.batch(), config.call_timeout()), (32, Duration::from_secs(7)));
    let SinkConfig::Webhook(webhook) = config else { panic!("{config:?}") };
    assert_eq!((webhook.allow_private, webhook.permanent), (AllowPrivate::None, Permanent::Usual));
    let to_many = read("allow_urls = ['https://*']").unwrap();
    assert_eq!((to_many.batch(), to_many.check()), (128, vec![]));
}

#[test]
fn unknown_and_ill_formed_settings_are_refused() {
    for (settings, word) in [
        ("urls = 'x'", "urls"),
        ("url = 'https://h'\nallow_private = 'yes'", "list of networks"),
        ("url = 'https://h'\npermanent = 'all'", "none"),
        ("url = 'https://h'\nrequest_timeout = 'soon'", "soon"),
        ("url = 'https://h'\nrequest_timeout = -1", "negative"),
        ("url = 'https://h'\nsecret = 5", "list of texts"),
    ] {
        let error = read(settings).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
    let error = toml::from_str::<SinkConfig>("kind = 'carrier-pigeon'").unwrap_err().to_string();
    assert!(error.contains("carrier-pigeon") && error.contains("webhook"), "{error}");
}

#[test]
fn every_fault_is_told_at_once_with_its_path() {
    let settings = "url = 'ftp://h'\nmethod = 'GET'\nsecret = ['good', '']\nallow_urls = ['https://a', 'https://*b']\n\
                    allow_private = ['10.0.0.0/8', '10.0.0.1/8']\npermanent = [400, 200]\nrequest_timeout = 0\n\
                    parallel = 0\nper_origin = 0\nca = 'no/such/file.pem'\n[headers]\nhost = 'a'\n'x y' = 'a'\n";
    let faults = read(settings).unwrap().check();
    let mut paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
    paths.sort_unstable();
    let want = [
        "allow_private[1]",
        "allow_urls[1]",
        "ca",
        "headers.host",
        "headers.x y",
        "method",
        "parallel",
        "per_origin",
        "permanent[1]",
        "request_timeout",
        "secret[1]",
        "url",
    ];
    assert_eq!(paths, want);
    let nowhere = read("").unwrap();
    assert_eq!(nowhere.check()[0].path, "url");
    assert!(nowhere.build(std::sync::Arc::new(duly::ManualClock::new())).is_err());
}

#[test]
fn headers_without_an_address_of_the_sinks_own_would_go_nowhere() {
    let faults = read("allow_urls = ['https://*']\n[headers]\nx-a = 'b'\n").unwrap().check();
    assert_eq!(faults.iter().map(|fault| fault.path.as_str()).collect::<Vec<_>>(), ["headers"]);
    assert!(
        read("url = 'https://h'\nallow_urls = ['https://*']\n[headers]\nx-a = 'b'\n")
            .unwrap()
            .check()
            .is_empty()
    );
}

#[test]
fn a_client_certificate_is_for_an_address_of_the_sinks_own_by_tls() {
    let clients = testkit::tls::ClientCertificate::new();
    let made = clients.settings();
    let (cert, key) = made.split_once('\n').unwrap();
    let faults = |settings: &str| {
        let faults = read(settings).unwrap().check();
        faults.into_iter().map(|fault| fault.path).collect::<Vec<_>>()
    };
    assert_eq!(faults(&format!("url = 'https://h'\n{made}")), [""; 0]);
    assert_eq!(faults(&format!("url = 'https://h'\n{cert}")), ["client_key"]);
    assert_eq!(faults(&format!("url = 'https://h'\n{key}")), ["client_cert"]);
    assert_eq!(faults(&format!("url = 'http://h'\n{made}")), ["client_cert", "client_key"]);
    assert_eq!(faults(&format!("allow_urls = ['https://*']\n{made}")), ["client_cert", "client_key"]);
}
