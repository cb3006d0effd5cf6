//! "Add a sink" in CONTRIBUTING.md is complete: it names every file that lists the sinks, and no list of sinks misses one.

use std::{collections::BTreeSet, fs, path::Path};

use crate::sources::{Source, sources};

/// A file that names so many kinds of sink is a list of them. Lists of brokers leave out the webhook and Redis.
const LISTED_MIN: usize = 6;
/// Files that name many kinds and list none: the guide itself, reports, and this test.
const NO_LISTS: [&str; 3] = ["CONTRIBUTING.md", "docs/faults.md", "xtask/tests/tidy/add_a_sink.rs"];
/// Kinds that need a library written in C.
const WITH_C: [&str; 1] = ["kafka"];
/// Kinds whose targets are no brokers that can hang between connection and reply: tests of their own show that.
const NO_BROKERS: [&str; 2] = ["webhook", "redis_streams"];

const LIB: &str = "crates/sinks/src/lib.rs";
const FEATURES: [&str; 3] = ["crates/sinks/Cargo.toml", "crates/server/Cargo.toml", "crates/cli/Cargo.toml"];

fn path(source: &Source) -> String {
    source.path.to_string_lossy().replace('\\', "/")
}

fn text<'a>(sources: &'a [Source], file: &str) -> &'a str {
    &sources.iter().find(|source| source.path == Path::new(file)).expect(file).text
}

/// Every kind: the folders that document a sink.
fn kinds() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository");
    let folders = fs::read_dir(root.join("crates/sinks/src")).expect("the sinks").flatten();
    let folders = folders.filter(|entry| entry.path().join("docs.md").is_file());
    folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// What stands between `begin` and `end`.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("there is no {begin:?}"));
    rest.split_once(end).unwrap_or_else(|| panic!("there is no {end:?} after {begin:?}")).0
}

/// The words that follow `begin`, wherever it stands.
fn words_after(text: &str, begin: &str) -> BTreeSet<String> {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(begin).skip(1);
    words.map(|rest| rest.split(|c| !is_of_word(c)).next().unwrap_or_default().to_owned()).collect()
}

/// The words between quotes.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

fn names(text: &str, kind: &str) -> bool {
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_of_word(c)).any(|word| word == kind)
}

/// The files that list the sinks.
fn lists(sources: &[Source], kinds: &BTreeSet<String>) -> BTreeSet<String> {
    let is_list = |source: &&Source| {
        kinds.iter().filter(|kind| names(&source.text, kind)).count() >= LISTED_MIN
            && !NO_LISTS.contains(&path(source).as_str())
    };
    sources.iter().filter(is_list).map(path).collect()
}

/// The files that the table names.
fn in_the_guide(sources: &[Source]) -> BTreeSet<String> {
    let section = between(text(sources, "CONTRIBUTING.md"), "\n## Add a sink\n", "\n## ");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let files =
        rows.filter_map(|row| row.split('|').nth(1)).flat_map(|cell| cell.split('`').skip(1).step_by(2));
    files.filter(|file| !file.contains('<')).map(Into::into).collect()
}

#[test]
fn the_guide_names_every_file_that_lists_the_sinks() {
    let sources = sources();
    assert_eq!(
        lists(&sources, &kinds()),
        in_the_guide(&sources),
        "left: the files, right: the table in CONTRIBUTING.md"
    );
}

#[test]
fn no_list_of_sinks_misses_one() {
    let (sources, kinds) = (sources(), kinds());
    assert!(kinds.len() >= 8, "{kinds:?}");
    let but = |exceptions: &[&str]| -> BTreeSet<String> {
        let stale: Vec<_> = exceptions.iter().filter(|kind| !kinds.contains(**kind)).collect();
        assert!(stale.is_empty(), "there is no sink {stale:?}");
        kinds.iter().filter(|kind| !exceptions.contains(&kind.as_str())).cloned().collect()
    };
    let of = |file: &str| text(&sources, file);

    let declared = between(of(LIB), "pub const KINDS: [&str; ", ";\n");
    assert_eq!(quoted(declared.split_once('=').expect("the list").1), kinds, "{LIB}, KINDS");
    for file in FEATURES {
        let mut defaults = quoted(between(of(file), "\ndefault = [", "]"));
        defaults.retain(|feature| feature != "otel");
        assert_eq!(defaults, kinds, "{file}, default features");
        let features = between(of(file), "\n[features]\n", "\n[");
        let missing: Vec<_> =
            kinds.iter().filter(|kind| !features.contains(&format!("\n{kind} = ["))).collect();
        assert!(missing.is_empty(), "{file} has no feature {missing:?}");
    }
    let file = "crates/server/src/config/default.toml";
    assert_eq!(words_after(of(file), "\n# kind = \""), kinds, "{file}, examples of sinks");

    let file = "crates/sinks/tests/targets/coverage.rs";
    let columns = between(of(file), "pub(crate) const COLUMNS: ", "];\n");
    assert_eq!(words_after(columns, "    (\""), kinds, "{file}, COLUMNS");
    let file = "crates/sinks/tests/conformance.rs";
    let suites = words_after(of(file), "testkit::sink_suite!(");
    let missing: Vec<_> =
        kinds.iter().filter(|kind| !suites.iter().any(|suite| suite.starts_with(*kind))).collect();
    assert!(missing.is_empty(), "{file} runs no suite of {missing:?}");

    let file = "crates/server/tests/http/acceptance.rs";
    let sinks = between(of(file), "const SINKS: &str = ", "\"#;");
    assert_eq!(words_after(sinks, "{kind = \""), kinds, "{file}, SINKS");
    let file = "crates/sinks/tests/unresponsive/brokers.rs";
    assert_eq!(words_after(of(file), "broker!(\""), but(&NO_BROKERS), "{file}");
    let file = "xtask/src/test.rs";
    let without_c = between(of(file), "const WITHOUT_C: &str = ", ";\n");
    assert_eq!(words_after(without_c, "duly-cli/"), but(&WITH_C), "{file}, WITHOUT_C");
    let command = between(of("CONTRIBUTING.md"), "cargo build --no-default-features --features ", "`");
    let command: BTreeSet<_> = command.split(',').map(str::to_owned).collect();
    assert_eq!(command, but(&WITH_C), "CONTRIBUTING.md, the build without C");
}
