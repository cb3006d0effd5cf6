//! What users match and read may grow: ADR 0038.

use std::collections::BTreeSet;

use crate::sources::{Source, sources};

/// Users write them with `..Default::default()`, or whole.
const OPTIONS: [&str; 13] = [
    "DeadLetterPolicy",
    "HandlerOptions",
    "Limits",
    "Query",
    "Rate",
    "Receive",
    "Retry",
    "RetryOverride",
    "RetryPolicy",
    "Settings",
    "SinkOptions",
    "SweepSettings",
    "Trim",
];

/// A store or a sink that does not know a field or a variant of these would lose it: its author must be told.
const PORTS: [&str; 19] = [
    "Claim",
    "Claimed",
    "Delivery",
    "Fence",
    "Hint",
    "Holder",
    "InStoreDelivered",
    "InStoreMessage",
    "Insert",
    "Inserted",
    "LeaseLoss",
    "LeasedMessage",
    "Past",
    "Receipt",
    "Remaining",
    "Settle",
    "Settlement",
    "StoredMessage",
    "Sweep",
];

/// Spoken between the scheduler and its driver alone.
const SCHEDULER: [&str; 12] = [
    "Action",
    "AttemptResult",
    "ClaimedJob",
    "DeliveryKey",
    "DeliveryTerms",
    "Event",
    "Job",
    "LaneKey",
    "LaneSettings",
    "Report",
    "Triage",
    "LaneWorker",
];

/// The public enums, and the public structs with public fields, that are not `#[non_exhaustive]`.
fn closed_types(source: &Source) -> Vec<&str> {
    let mut found = Vec::new();
    let mut may_grow = false;
    let lines: Vec<&str> = source.text.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        if line.starts_with("///") || line.starts_with("#[") || line.starts_with("    ") {
            may_grow |= line.trim() == "#[non_exhaustive]" && !line.starts_with(' ');
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
    let libraries = ["crates/core/src", "crates/duly/src", "crates/redis-mq/src"];
    let is_library =
        |source: &&Source| source.is_rust() && libraries.iter().any(|lib| source.path.starts_with(lib));
    let closed: BTreeSet<&str> = sources.iter().filter(is_library).flat_map(closed_types).collect();
    let allowed: BTreeSet<&str> = [&OPTIONS[..], &PORTS, &SCHEDULER].concat().into_iter().collect();
    let missing: Vec<_> = closed.difference(&allowed).collect();
    assert!(missing.is_empty(), "make them #[non_exhaustive], or say here why not (ADR 0038): {missing:?}");
    let stale: Vec<_> = allowed.difference(&closed).collect();
    assert!(stale.is_empty(), "these are no exceptions any more: {stale:?}");
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
}
