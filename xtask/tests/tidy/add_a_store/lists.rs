//! No list of stores misses one, from the crate to the server's configuration and the doctor: what the compiler does not see, as a `match`
//! outside of `duly-stores` ends with `_`.

use std::{collections::BTreeSet, fs, path::Path};

use super::listed;
use crate::sources::{Source, sources};

/// `redis_and_mysql` as a variant: `RedisAndMysql`.
fn variant(store: &str) -> String {
    store.split('_').map(|part| part[..1].to_uppercase() + &part[1..]).collect()
}

/// `redis+mysql` as a name of Rust: `redis_and_mysql`.
fn name(kind: &str) -> String {
    kind.replace('+', "_and_")
}

/// A file, and what stands there of each that is listed.
type List = (&'static str, fn(&str) -> String);

/// By the feature of a store, which is its folder, too.
const OF_STORES: [List; 10] = [
    ("crates/stores/Cargo.toml", |store| format!("\n{store} = [")),
    ("crates/stores/src/lib.rs", |store| format!("pub use {store}::{{")),
    ("crates/stores/src/config.rs", |store| format!("\n    {}(", variant(store))),
    ("crates/testkit/Cargo.toml", |store| format!("\"{store}\"")),
    ("crates/duly/Cargo.toml", |store| format!("\n{store} = [\"duly-stores/{store}\"")),
    ("crates/duly/src/builder.rs", |store| format!("StoreConfig::{}(", variant(store))),
    ("crates/duly/src/lib.rs", |store| format!("`{store}`")),
    ("crates/server/Cargo.toml", |store| format!("\"{store}\"")),
    ("crates/server/src/config/store.rs", |store| format!("StoreConfig::{}(", variant(store))),
    ("crates/cli/src/doctor/mod.rs", |store| format!("StoreConfig::{}(", variant(store))),
];

/// By the word of the configuration.
const OF_KINDS: [List; 9] = [
    ("crates/stores/src/config.rs", |kind| format!("\"{kind}\"")),
    ("crates/testkit/src/store/fixtures.rs", |kind| format!("\npub fn {}() -> Lab", name(kind))),
    ("crates/testkit/src/lib.rs", name),
    ("crates/stores/tests/conformance.rs", |kind| format!("store_suite!({0}, testkit::{0}());", name(kind))),
    ("crates/server/src/config/store.rs", |kind| format!("\"{kind}\" => ")),
    ("crates/server/src/config/default.toml", |kind| format!("\"{kind}\"")),
    ("docs/reference/configuration.md", |kind| format!("`{kind}`: ")),
    ("README.md", |kind| format!("`{kind}`")),
    ("README.zh-CN.md", |kind| format!("`{kind}`")),
];

/// Lists outside of the table: the guide names them in its text.
const IN_DOCS: [&str; 4] = [
    "README.md",
    "README.zh-CN.md",
    "crates/server/src/config/default.toml",
    "docs/reference/configuration.md",
];

/// The folders that document a store.
fn stores() -> Vec<String> {
    let folders = fs::read_dir(crate::dependencies::root().join("crates/stores/src")).expect("the stores");
    let folders = folders.flatten().filter(|entry| entry.path().join("docs.md").is_file());
    folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The words of the configuration.
fn kinds(sources: &[Source]) -> Vec<&str> {
    let (_, rest) =
        text(sources, "crates/stores/src/config.rs").split_once("pub const KINDS").expect("KINDS");
    let list = rest.split_once(" = [").and_then(|(_, rest)| rest.split_once(']')).expect("its list").0;
    list.split('"').skip(1).step_by(2).collect()
}

fn text<'a>(sources: &'a [Source], file: &str) -> &'a str {
    &sources.iter().find(|source| source.path == Path::new(file)).expect(file).text
}

/// The lists that miss one of `all`: their files, with what is not there.
fn missing(sources: &[Source], lists: &[List], all: &[&str]) -> Vec<(&'static str, String)> {
    let of_list = |(file, line): &List| {
        let text = text(sources, file);
        let lines = all.iter().map(|each| line(each)).filter(|line| !text.contains(line));
        lines.map(|line| (*file, line)).collect::<Vec<_>>()
    };
    lists.iter().flat_map(of_list).collect()
}

#[test]
fn no_list_of_stores_misses_one() {
    let sources = sources();
    let (stores, kinds) = (stores(), kinds(&sources));
    let stores: Vec<&str> = stores.iter().map(String::as_str).collect();
    assert!(stores.len() >= 4 && kinds.len() >= 5, "{stores:?} {kinds:?}");
    assert_eq!(missing(&sources, &OF_STORES, &stores), []);
    assert_eq!(missing(&sources, &OF_KINDS, &kinds), []);
}

/// Whoever forgets a row of the guide is told by one of the lists.
#[test]
fn a_store_that_nobody_added_is_missed_in_every_file_that_the_guide_names() {
    let sources = sources();
    let missing = [&OF_STORES[..], &OF_KINDS].map(|lists| missing(&sources, lists, &["dummy"])).concat();
    let missing: BTreeSet<String> = missing.into_iter().map(|(file, _)| file.to_owned()).collect();
    let mut guide = listed(&sources);
    guide.extend(IN_DOCS.map(str::to_owned));
    assert_eq!(missing, guide, "left: the lists, right: the guide");
    let page = text(&sources, "CONTRIBUTING.md");
    let (_, section) = page.split_once("\n## Add a store\n").expect("the section");
    let unnamed: Vec<_> = IN_DOCS.iter().filter(|file| !section.contains(*file)).collect();
    assert!(unnamed.is_empty(), "CONTRIBUTING.md does not name {unnamed:?}");
}
