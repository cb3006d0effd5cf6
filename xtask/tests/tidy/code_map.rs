//! The code map of ARCHITECTURE.md and the tables of crates agree with the sources.

use std::{collections::BTreeSet, path::Path};

use crate::{
    rules::functions,
    sources::{Source, sources},
};

/// Where a crate of the map has another name than its folder.
const FOLDERS: [(&str, &str); 1] = [("duly_streams", "streams")];

fn page<'a>(sources: &'a [Source], name: &str) -> &'a Source {
    sources.iter().find(|source| source.path == Path::new(name)).unwrap_or_else(|| panic!("no {name}"))
}

fn folder(name: &str) -> &str {
    FOLDERS.iter().find(|(word, _)| *word == name).map_or(name, |(_, folder)| folder)
}

/// The entries of the code map.
fn entries(page: &str) -> Vec<&str> {
    let map = page.split("\n## ").find_map(|section| section.strip_prefix("Code map\n")).unwrap_or_default();
    map.split("\n- ").skip(1).collect()
}

/// What stands in backquotes and may be a module: lower-case names, alone or as a path.
fn module_names(entry: &str) -> impl Iterator<Item = &str> {
    entry.split('`').skip(1).step_by(2).filter(|name| {
        name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b':')
    })
}

/// The modules and functions of a crate.
fn names_of<'a>(sources: &'a [Source], folder: &str) -> BTreeSet<&'a str> {
    let root = Path::new("crates").join(folder).join("src");
    let of_crate = sources.iter().filter(|source| source.is_rust() && source.path.starts_with(&root));
    let mut names = BTreeSet::new();
    for source in of_crate {
        let below = source.path.strip_prefix(&root).unwrap_or(&source.path);
        let parts = below.iter().filter_map(|part| part.to_str());
        names.extend(parts.map(|part| part.trim_end_matches(".rs")));
        names.extend(functions(source));
    }
    names
}

/// Names of the map that are neither modules nor functions. Those of an entry are of the crate that it begins with, or
/// have their own in front.
fn missing(page: &str, sources: &[Source]) -> Vec<String> {
    let crates = crates(sources);
    let is_crate = |name: &str| crates.contains(folder(name));
    let mut missing = Vec::new();
    for entry in entries(page) {
        let first = entry.split('`').nth(1).unwrap_or_default();
        let mut of = folder(first.split("::").next().unwrap_or_default());
        if !is_crate(of) {
            missing.push(format!("{first}: the entry begins with no crate"));
            continue;
        }
        for name in module_names(entry) {
            let mut parts = name.split("::").peekable();
            if let Some(other) = parts.next_if(|part| is_crate(part)).filter(|_| name.contains("::")) {
                of = folder(other);
            }
            let names = names_of(sources, of);
            missing.extend(
                parts
                    .filter(|part| !names.contains(part) && !is_crate(part))
                    .map(|part| format!("{name}: there is no {part} in crates/{of}")),
            );
        }
    }
    missing
}

/// The folders of all crates.
fn crates(sources: &[Source]) -> BTreeSet<&str> {
    let manifests = sources.iter().filter(|source| source.name() == "Cargo.toml");
    manifests
        .filter_map(|source| match source.path.iter().collect::<Vec<_>>()[..] {
            [crates, folder, _] if crates == "crates" => folder.to_str(),
            _ => None,
        })
        .collect()
}

#[test]
fn every_module_of_the_code_map_exists() {
    let sources = sources();
    let map = &page(&sources, "ARCHITECTURE.md").text;
    let count: usize = entries(map).iter().map(|entry| module_names(entry).count()).sum();
    assert!(count > 100, "{count} names");
    crate::assert_none(&missing(map, &sources));
}

#[test]
fn a_name_that_is_no_longer_there_is_seen() {
    let source = |path: &str, text: &str| Source::new(path, text.into());
    let sources = [
        source("crates/streams/Cargo.toml", ""),
        source("crates/streams/src/listen/reader.rs", "fn read() {}"),
        source("crates/core/Cargo.toml", ""),
        source("crates/core/src/store.rs", ""),
    ];
    let of = |entry: &str| missing(&format!("\n## Code map\n\n- {entry}\n\n## Rest\n- `x`\n"), &sources);
    assert!(
        of("**`duly_streams::listen`**: `reader` (`read`, `Type`, `a.lua`); **`core::store`**").is_empty()
    );
    assert_eq!(of("**`duly_streams::listen`**: `writer`"), ["writer: there is no writer in crates/streams"]);
    assert_eq!(of("**`core::stores`**"), ["core::stores: there is no stores in crates/core"]);
    assert_eq!(of("**`nothing`**").len(), 1);
}

#[test]
fn every_crate_is_in_the_tables_of_architecture_and_contributing() {
    let sources = sources();
    for name in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let rows: Vec<&str> =
            page(&sources, name).text.lines().filter(|line| line.starts_with("| `crates/")).collect();
        let is_named = |folder: &&&str| rows.iter().any(|row| row.contains(&format!("`crates/{folder}`")));
        let missing: Vec<_> = crates(&sources).into_iter().filter(|folder| !is_named(&folder)).collect();
        assert!(missing.is_empty(), "{name} does not name {missing:?}");
    }
}
