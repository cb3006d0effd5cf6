//! `[store]`: where messages wait.

use std::time::Duration;

use duly::{days, hours, seconds};
use duly_stores::redis;

use super::{
    RedisSetup, Secret, StoreKind, StoreSetup, secret::mask_url, section::Section, suggest::did_you_mean,
};

/// Kinds of store that are there.
const KINDS: [&str; 2] = ["embedded", "redis"];
/// Kinds of store that are planned and not there yet.
const KINDS_TO_COME: [&str; 3] = ["mysql", "postgres", "redis+mysql"];
/// Settings of those.
const SETTINGS_TO_COME: [&str; 2] = ["mysql", "postgres"];
/// Settings of the Redis store alone.
const OF_REDIS: [&str; 4] = ["redis", "shards", "allow_volatile", "wait_replicas"];

pub(super) fn store(section: &mut Section<'_>) -> StoreSetup {
    let word =
        section.value("kind", "embedded".to_owned(), |node| known(node.text()?), |kind| kind.as_str().into());
    let faulty = section.reading.is_faulty("store.kind");
    for key in SETTINGS_TO_COME {
        if let Some(node) = section.take(key).filter(|_| !faulty) {
            section.fault(key, &node.origin, "the store that has this setting is not in this version yet");
        }
    }
    let kind = if word == "redis" { StoreKind::Redis(of_redis(section)) } else { StoreKind::Embedded };
    if kind == StoreKind::Embedded {
        for key in OF_REDIS {
            if let Some(node) = section.take(key).filter(|_| !faulty) {
                let detail = format!("the {word} store has no such setting; it belongs to kind = \"redis\"");
                section.fault(key, &node.origin, detail);
            }
        }
    }
    let default = StoreSetup::of(kind);
    StoreSetup {
        lease: section.span("lease", default.lease, seconds(1)..=hours(12)),
        retention: section.span("retention", default.retention, Duration::ZERO..=days(3653)),
        retention_max: section.number("retention_max", default.retention_max, 0..=100_000_000),
        kind: default.kind,
    }
}

fn of_redis(section: &mut Section<'_>) -> RedisSetup {
    let default = RedisSetup::default();
    let url = section.value(
        "redis",
        default.url,
        |node| {
            let text = node.text()?;
            redis::check_address(text).map(|()| Secret::new(text))
        },
        |url| mask_url(url.reveal()).into(),
    );
    RedisSetup {
        url,
        shards: section.number("shards", default.shards, 1..=redis::Options::SHARDS_MAX),
        allow_volatile: section.flag("allow_volatile", default.allow_volatile),
        wait_replicas: section.number("wait_replicas", default.wait_replicas, 0..=100),
    }
}

fn known(word: &str) -> Result<String, String> {
    if KINDS.contains(&word) {
        return Ok(word.into());
    }
    let there = "use \"embedded\" or \"redis\"";
    if KINDS_TO_COME.contains(&word) {
        return Err(format!("the {word} store is not in this version yet; {there}"));
    }
    Err(format!("there is no {word:?} store{}; {there}", did_you_mean(word, KINDS)))
}
