//! `[sinks.X]`: the general settings are ours, the rest is the kind's own; the faults of both are told together.

use std::time::Duration;

use duly::{Backoff, Rate, SinkName};
use duly_server::config::SinkSetup;

use crate::load::{faults, load};

fn sink(text: &str, environment: &[(&str, &str)]) -> SinkSetup {
    let mut config = load(text, environment).unwrap_or_else(|problems| panic!("{problems}"));
    let name = SinkName::parse("orders").expect("a name");
    config.sinks.remove(&name).expect("it is configured")
}

#[test]
fn a_sink_that_says_nothing_is_served_as_its_kind_likes() {
    let SinkSetup { options, config, .. } =
        sink("[sinks.orders]\nkind = \"webhook\"\nurl = \"https://a.example\"", &[]);
    assert_eq!(config.kind(), "webhook");
    assert_eq!((options.in_flight, options.concurrency, options.batch), (1024, 4, config.batch().min(256)));
    assert_eq!(options.timeout, config.call_timeout() + Duration::from_secs(1));
    assert!(options.rate.is_none() && options.retry.is_none());
}

#[test]
fn what_a_sink_says_goes_before_what_is_general() {
    let text = r#"
        [retry]
        attempts = 9
        min = "2s"
        [sinks.orders]
        kind = "webhook"
        url = "https://a.example"
        in_flight = 10
        concurrency = 2
        batch = 5
        rate = 100
        request_timeout = "3s"
        timeout = "4s"
        retry = { backoff = "fixed", max = "10s" }
    "#;
    let options = sink(text, &[]).options;
    assert_eq!((options.in_flight, options.concurrency, options.batch), (10, 2, 5));
    assert_eq!(options.rate.map(|rate| (rate.per_second, rate.burst)), Some((100, 10)));
    assert_eq!(options.timeout, Duration::from_secs(4));
    let retry = options.retry.unwrap();
    assert_eq!((retry.attempts, retry.backoff), (9, Backoff::Fixed));
    assert_eq!((retry.min, retry.max), (Duration::from_secs(2), Duration::from_secs(10)));

    let text = "[sinks.orders]\nkind = \"webhook\"\nurl = \"https://a.example\"\nrate = { per_second = 50, burst = 7 }";
    let Some(Rate { per_second, burst }) = sink(text, &[]).options.rate else { panic!("a rate was given") };
    assert_eq!((per_second, burst), (50, 7));
}

#[test]
fn a_whole_sink_can_come_from_the_environment() {
    let environment = [
        ("DULY__SINKS__ORDERS__KIND", "webhook"),
        ("DULY__SINKS__ORDERS__URL", "https://a.example"),
        ("DULY__SINKS__ORDERS__PARALLEL", "7"),
        ("DULY__SINKS__ORDERS__PER_ORIGIN", "9"),
        ("DULY__SINKS__ORDERS__ALLOW_PRIVATE", "true"),
        ("DULY__SINKS__ORDERS__SECRET", "123456789012345678901234567890"),
        ("DULY__SINKS__ORDERS__REQUEST_TIMEOUT", "2s"),
        ("DULY__SINKS__ORDERS__RETRY__ATTEMPTS", "3"),
    ];
    let SinkSetup { options, config, .. } = sink("", &environment);
    assert_eq!((config.batch(), config.call_timeout()), (7, Duration::from_secs(2)));
    assert!(format!("{config:?}").contains("per_origin: Some(9)"), "{config:?}");
    assert_eq!(options.retry.unwrap().attempts, 3);
}

#[test]
fn the_faults_of_a_sink_are_all_told() {
    let text = r#"
        [sinks.orders]
        kind = "webhook"
        url = "ftp://a.example"
        metod = "POST"
        timeot = "4s"
        parallel = "many"
        request_timeout = "soon"
        permanent = [200]
        in_flight = 0
        rate = { burst = 3 }
        retry = { attempts = 0, backof = "fixed" }
    "#;
    let reported = faults(text, &[]);
    let paths: Vec<&str> =
        reported.iter().map(|(path, _)| path.trim_start_matches("sinks.orders.")).collect();
    let expected = [
        "url",
        "metod",
        "timeot",
        "parallel",
        "request_timeout",
        "permanent",
        "in_flight",
        "rate.per_second",
        "retry.attempts",
        "retry.backof",
    ];
    for path in expected {
        assert!(
            paths.iter().any(|reported| reported.split('[').next() == Some(path)),
            "{path} is not told: {reported:#?}"
        );
    }
    assert_eq!(reported.len(), expected.len(), "{reported:#?}");
    let detail = |path: &str| &reported.iter().find(|(reported, _)| reported.ends_with(path)).unwrap().1;
    assert!(detail("metod").contains("did you mean method?"));
    assert!(detail("timeot").contains("did you mean timeout?"));
    assert!(detail("backof").contains("did you mean backoff?"));
}

#[test]
fn a_call_lies_between_one_request_and_the_lease() {
    let text = |lease: &str, timeout: &str| {
        format!(
            "[store]\nlease = \"{lease}\"\n[sinks.orders]\nkind = \"webhook\"\nurl = \"https://a.example\"\n{timeout}"
        )
    };
    // What is named is what was written.
    for (lease, timeout, path, words) in [
        ("10s", "timeout = \"10s\"", "sinks.orders.timeout", "shorter than store.lease, 10s"),
        ("10s", "timeout = \"30s\"", "sinks.orders.timeout", "shorter than store.lease, 10s"),
        ("10s", "timeout = \"5s\"", "sinks.orders.timeout", "make request_timeout shorter"),
        ("5s", "", "store.lease", "make it longer, or sinks.orders.request_timeout shorter"),
        ("10s", "request_timeout = \"12s\"", "sinks.orders.request_timeout", "make request_timeout shorter"),
    ] {
        let reported = faults(&text(lease, timeout), &[]);
        assert_eq!(reported.len(), 1, "{reported:?}");
        assert!(reported[0].0 == path && reported[0].1.contains(words), "{reported:?}");
    }
    assert!(load(&text("5s", "request_timeout = \"3s\""), &[]).is_ok());
    assert!(load(&text("1m", "request_timeout = \"30s\""), &[]).is_ok());
}

#[test]
fn a_rocketmq_sink_may_insist_on_its_copies() {
    let text = |weaker: &str| {
        format!("[sinks.orders]\nkind = \"rocketmq\"\nnamesrv = \"a:9876\"\naccept_weaker = {weaker}")
    };
    for good in ["true", "false"] {
        let SinkSetup { config, .. } = sink(&text(good), &[]);
        assert!(format!("{config:?}").contains(&format!("accept_weaker: Some({good})")), "{config:?}");
    }
    let environment = [("DULY__SINKS__ORDERS__ACCEPT_WEAKER", "false")];
    let text_without = "[sinks.orders]\nkind = \"rocketmq\"\nnamesrv = \"a:9876\"";
    let SinkSetup { config, .. } = sink(text_without, &environment);
    assert!(format!("{config:?}").contains("accept_weaker: Some(false)"), "{config:?}");
    let reported = faults(&text("\"sometimes\""), &[]);
    assert!(reported.len() == 1 && reported[0].0 == "sinks.orders.accept_weaker", "{reported:?}");
}

#[test]
fn attributes_of_cloudevents_are_checked_with_the_kind_of_the_sink() {
    let hook = "[sinks.orders]\nkind = \"webhook\"\nurl = \"https://a.example\"\n";
    let attributes = "cloudevents = { source = \"/shop\", type = \"example.{topic}\" }\n";
    let setup = sink(&format!("{hook}{attributes}"), &[]);
    let written = setup.cloudevents.unwrap();
    assert_eq!((written.source.as_str(), written.kind.as_deref()), ("/shop", Some("example.{topic}")));
    let environment = [("DULY__SINKS__ORDERS__CLOUDEVENTS__SOURCE", "/shop")];
    assert_eq!(sink(hook, &environment).cloudevents.unwrap().kind, None);
    assert!(sink(hook, &[]).cloudevents.is_none());

    let redis = "[sinks.orders]\nkind = \"redis_streams\"\nurl = \"redis://a\"\n";
    let mqtt = "[sinks.orders]\nkind = \"mqtt\"\nurl = \"mqtt://a\"\nversion = \"3.1.1\"\n";
    for (text, path) in [
        (format!("{hook}cloudevents = {{ type = \"a\" }}\n"), "cloudevents.source"),
        (format!("{hook}cloudevents = {{ source = \"a b\" }}\n"), "cloudevents.source"),
        (format!("{hook}cloudevents = {{ source = \"/a\", type = \"\" }}\n"), "cloudevents.type"),
        (format!("{hook}cloudevents = {{ source = \"/a\", kind = \"a\" }}\n"), "cloudevents.kind"),
        (format!("{hook}{attributes}headers = {{ ce-source = \"/b\" }}\n"), "headers.ce-source"),
        (format!("{redis}{attributes}"), "cloudevents"),
        (format!("{mqtt}{attributes}"), "cloudevents"),
    ] {
        let reported = faults(&text, &[]);
        assert_eq!(
            reported.iter().map(|(path, ..)| path.as_str()).collect::<Vec<_>>(),
            [format!("sinks.orders.{path}")],
            "{text}"
        );
    }
}
