//! Secrets appear nowhere.

use duly_sinks::SinkConfig;
use testkit::http::{HttpServer, Reply};

use crate::{failure, one};

const PLANTED: [&str; 4] =
    ["t0ken-in-a-header", "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ=", "pl4in-secret", "path-t0ken-0123456789"];

fn settings(url: &str) -> String {
    format!(
        "kind = 'webhook'\nurl = '{url}/{}?sig=query-t0ken-0123456789'\nallow_private = true\n\
         secret = ['{}', '{}']\n[headers]\nAuthorization = 'Bearer {}'",
        PLANTED[3], PLANTED[1], PLANTED[2], PLANTED[0]
    )
}

fn assert_clean(text: &str) {
    for secret in PLANTED.iter().chain(&["query-t0ken-0123456789", "c2VjcmV0LXNlY3JldC1zZWNyZXQ="]) {
        assert!(!text.contains(secret), "{secret} appears in {text}");
    }
}

#[test]
fn debugging_a_configuration_shows_no_secret() {
    let config: SinkConfig = toml::from_str(&settings("https://example.com")).unwrap();
    assert_clean(&format!("{config:?} {config:#?}"));
}

#[test]
fn a_fault_in_a_secret_does_not_repeat_it() {
    for (settings, secret) in [
        ("url = 'https://user:s3cret-word@h'", "s3cret-word"),
        ("url = 'ftp://h/s3cret-word'", "s3cret-word"),
        ("url = 'h/s3cret-word'", "s3cret-word"),
        ("url = 'https://h/#s3cret-word'", "s3cret-word"),
        ("url = 'https://h'\nsecret = 'whsec_s3cret-word!'", "s3cret-word"),
        ("url = 'https://h'\n[headers]\na = \"s3cret-word\\n\"", "s3cret-word"),
        ("url = 'https://h'\n[headers]\nhost = 's3cret-word'", "s3cret-word"),
    ] {
        let config: SinkConfig = toml::from_str(&format!("kind = 'webhook'\n{settings}")).unwrap();
        let faults = config.check();
        assert!(!faults.is_empty(), "{settings}");
        assert!(!format!("{faults:?}").contains(secret), "{faults:?}");
    }
}

#[tokio::test]
async fn a_target_that_repeats_what_it_was_sent_gives_nothing_away() {
    let echo = HttpServer::start(|request| {
        let status = if request.uri.path().ends_with("/good") { 200 } else { 500 };
        Reply::status(status, format!("{} {:?}", request.uri, request.header("authorization")))
    });
    let config: SinkConfig = toml::from_str(&settings(&echo.url())).unwrap();
    let sink = config.build(std::sync::Arc::new(duly::ManualClock::new())).unwrap();
    let error = failure(&sink, "bad").await;
    assert!(error.detail.contains("***"), "{}", error.detail);
    assert_clean(&format!("{error} {error:?}"));
    assert_clean(&one(&sink, "good").await.unwrap());
    assert!(echo.requests()[0].header("authorization").unwrap().contains(PLANTED[0]), "the target was told");
}

#[tokio::test]
async fn an_address_that_is_not_reached_is_named_without_its_path() {
    let closed = HttpServer::start(|_| Reply::status(200, ""));
    closed.stop();
    let config: SinkConfig = toml::from_str(&settings(&closed.url())).unwrap();
    let sink = config.build(std::sync::Arc::new(duly::ManualClock::new())).unwrap();
    let error = failure(&sink, "a").await;
    assert!(error.detail.contains(&closed.addr().to_string()), "{}", error.detail);
    assert_clean(&error.detail);
    assert_clean(&sink.probe().await.unwrap_err().detail);
}

/// What is kept of an answer ends somewhere: half a secret must not stand at that end.
#[tokio::test]
async fn a_secret_at_the_end_of_what_is_kept_is_not_cut_in_half() {
    let echo = HttpServer::start(|request| {
        let token = request.header("authorization").unwrap_or_default();
        Reply::status(500, format!("{}{token}", "x".repeat(180)))
    });
    let config: SinkConfig = toml::from_str(&settings(&echo.url())).unwrap();
    let sink = config.build(std::sync::Arc::new(duly::ManualClock::new())).unwrap();
    let error = failure(&sink, "bad").await;
    assert!(error.detail.contains("xxx") && !error.detail.contains("t0ken"), "{}", error.detail);
}
