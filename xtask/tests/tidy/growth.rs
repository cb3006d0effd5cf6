//! What users match and read may grow: ADR 0038.

use std::{collections::BTreeSet, path::Path};

use crate::sources::{Source, sources};

/// The libraries whose types users match and read.
const LIBRARIES: [&str; 7] = ["client", "core", "duly", "redis-link", "redis-mq", "sinks", "stores"];

/// Users write them with `..Default::default()`, or whole.
const OPTIONS: [&[&str]; 7] = [
    &[
        "client/BulkRequest",
        "client/EventFilter",
        "client/Extend",
        "client/Filter",
        "client/ForecastSpan",
        "client/MovedRequest",
        "client/Nack",
        "client/NewMessage",
        "client/Query",
        "client/Receipts",
        "client/Receive",
        "client/ReceiveAny",
        "client/Reschedule",
        "client/Retry",
    ],
    &[
        "core/Limits",
        "core/Query",
        "core/Rate",
        "core/RetryOverride",
        "core/RetryPolicy",
        "core/Settings",
        "core/SweepSettings",
    ],
    &["duly/HandlerOptions", "duly/Receive", "duly/SinkOptions"],
    &["redis-link/ClientIdentity", "redis-link/Reach"],
    &["redis-mq/DeadLetterPolicy", "redis-mq/Retry", "redis-mq/Settings", "redis-mq/Trim"],
    &[
        "sinks/ActivemqConfig",
        "sinks/CloudEventsConfig",
        "sinks/KafkaConfig",
        "sinks/MqttConfig",
        "sinks/NatsConfig",
        "sinks/OneOrMany",
        "sinks/RabbitmqConfig",
        "sinks/RedisStreamsConfig",
        "sinks/RocketmqConfig",
        "sinks/Span",
        "sinks/WebhookConfig",
    ],
    &[
        "stores/EmbeddedConfig",
        "stores/NodeOptions",
        "stores/Options",
        "stores/RedisAndMysqlConfig",
        "stores/RedisConfig",
        "stores/Retention",
        "stores/SqlConfig",
        "stores/StreamLimits",
    ],
];

/// A store or a sink that does not know a field or a variant of these would lose it: its author must be told.
const PORTS: [&str; 19] = [
    "core/Claim",
    "core/Claimed",
    "core/Delivery",
    "core/Fence",
    "core/Hint",
    "core/Holder",
    "core/InStoreDelivered",
    "core/InStoreMessage",
    "core/Insert",
    "core/Inserted",
    "core/LeaseLoss",
    "core/LeasedMessage",
    "core/Past",
    "core/Receipt",
    "core/Remaining",
    "core/Settle",
    "core/Settlement",
    "core/StoredMessage",
    "core/Sweep",
];

/// Spoken between the scheduler and its driver alone.
const SCHEDULER: [&str; 12] = [
    "core/Action",
    "core/AttemptResult",
    "core/ClaimedJob",
    "core/DeliveryKey",
    "core/DeliveryTerms",
    "core/Event",
    "core/Job",
    "core/LaneKey",
    "core/LaneSettings",
    "core/Report",
    "core/Triage",
    "core/LaneWorker",
];

/// The JSON that both ends speak.
const WIRE: &str = "crates/client/src/wire";

/// An answer of the server may grow for everybody but the server, which must write all of it: ADR 0045.
const ANSWER: &str = "#[cfg_attr(not(feature = \"server\"), non_exhaustive)]";

/// The public enums, and the public structs with public fields, that are not `#[non_exhaustive]`.
fn closed_types(source: &Source) -> Vec<&str> {
    let mut found = Vec::new();
    let mut may_grow = false;
    let lines: Vec<&str> = source.text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        if line.starts_with("///") || line.starts_with("#[") || line.starts_with("    ") {
            may_grow |= *line == "#[non_exhaustive]" || *line == ANSWER && source.path.starts_with(WIRE);
            continue;
        }
        let rest = line.strip_prefix("pub enum ").map(|rest| (rest, true));
        let rest = rest.or_else(|| line.strip_prefix("pub struct ").map(|rest| (rest, false)));
        if let Some((rest, is_enum)) = rest {
            let body = lines[index + 1..].iter().take_while(|line| !line.starts_with('}'));
            let is_tuple = line.ends_with(';');
            let has_fields = line.contains("(pub ")
                || !is_tuple
                    && body.clone().any(|line| line.starts_with("    pub ") && !line.contains("fn "));
            let name = rest.split([' ', '<', '(', ';', '{']).next().unwrap_or(rest);
            if (is_enum || has_fields) && !may_grow {
                found.push(name);
            }
        }
        may_grow = false;
    }
    found
}

#[test]
fn what_users_match_and_read_may_grow() {
    let sources = sources();
    let of = |library: &&'static str| {
        let folder = format!("crates/{library}/src");
        let library = *library;
        let is_its = move |source: &&Source| source.is_rust() && source.path.starts_with(&folder);
        let closed = sources.iter().filter(is_its).flat_map(closed_types);
        closed.map(move |name| format!("{library}/{name}")).collect::<Vec<_>>()
    };
    let closed: BTreeSet<String> = LIBRARIES.iter().flat_map(of).collect();
    let allowed = [&OPTIONS.concat(), &PORTS[..], &SCHEDULER].concat();
    let allowed: BTreeSet<String> = allowed.into_iter().map(ToOwned::to_owned).collect();
    let missing: Vec<_> = closed.difference(&allowed).collect();
    assert!(
        missing.is_empty(),
        "make them #[non_exhaustive], or say here why not (ADR 0038, 0045): {missing:?}"
    );
    let stale: Vec<_> = allowed.difference(&closed).collect();
    assert!(stale.is_empty(), "these are no exceptions any more: {stale:?}");
}

/// With the feature, whoever matches an answer is broken by the next field of it.
#[test]
fn the_server_alone_writes_answers_whole() {
    let sources = sources();
    let is_manifest = |source: &&Source| source.name() == "Cargo.toml";
    let asks = |source: &&Source| {
        let mut lines = source.text.lines();
        lines.any(|line| line.starts_with("duly-client") && line.contains("\"server\""))
    };
    let asking: Vec<_> = sources.iter().filter(is_manifest).filter(asks).map(|source| &source.path).collect();
    assert_eq!(asking, [Path::new("crates/server/Cargo.toml")]);
}

/// The public enums with variants behind a feature that are not `#[non_exhaustive]`: a feature that another crate switches on would break
/// a `match` of theirs.
fn closed_by_features(source: &Source) -> Vec<&str> {
    let closed = closed_types(source).into_iter();
    let body = |name: &str| source.text.split_once(&format!("pub enum {name} {{")).map(|(_, rest)| rest);
    let has_features = |name: &&str| {
        let mut lines = body(name).unwrap_or_default().lines().take_while(|line| !line.starts_with('}'));
        lines.any(|line| line.trim().starts_with("#[cfg(feature"))
    };
    closed.filter(has_features).collect()
}

#[test]
fn an_enum_whose_variants_are_features_may_grow() {
    let sources = sources();
    let is_code = |source: &&Source| source.is_rust() && source.path.starts_with("crates");
    let closed: Vec<&str> = sources.iter().filter(is_code).flat_map(closed_by_features).collect();
    assert!(closed.is_empty(), "make them #[non_exhaustive] (ADR 0038): {closed:?}");
    let of = |text: &str| closed_by_features(&Source::new("a.rs", text.into())).join(" ");
    let gated = "pub enum A {\n    #[cfg(feature = \"b\")]\n    B,\n}\n";
    assert_eq!((of(gated), of(&format!("#[non_exhaustive]\n{gated}"))), ("A".into(), String::new()));
}

#[test]
fn the_rule_sees_open_types() {
    let of = |text: &str| closed_types(&Source::new("a.rs", text.into())).join(" ");
    assert_eq!(
        of("pub enum A {\n    B,\n}\npub struct C {\n    pub d: u8,\n}\npub struct E(pub u8);\n"),
        "A C E"
    );
    assert_eq!(
        of(
            "#[non_exhaustive]\npub enum A {\n    B,\n}\n#[non_exhaustive]\npub struct C<T> {\n    pub d: T,\n}\n"
        ),
        ""
    );
    assert_eq!(
        of(
            "pub struct A {\n    b: u8,\n    pub(crate) c: u8,\n}\npub struct D(u8);\npub(crate) enum E {\n    F,\n}\n"
        ),
        ""
    );
    assert_eq!(of("#[non_exhaustive]\npub enum A {\n    B,\n}\n\npub enum C {\n    D,\n}\n"), "C");
    let answer = format!("{ANSWER}\npub struct A {{\n    pub b: u8,\n}}\n");
    assert_eq!(of(&answer), "A", "for everybody, but for answers");
    assert!(closed_types(&Source::new("crates/client/src/wire/a.rs", answer)).is_empty());
}
