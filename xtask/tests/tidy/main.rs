//! Style as a test: the rules of the house that neither rustfmt nor clippy can keep.

mod add_a_sink;
mod add_a_store;
mod code;
mod code_map;
mod dependencies;
mod examples;
mod glossary;
mod growth;
mod links;
mod names;
mod packages;
mod probes;
mod rules;
mod sources;
mod stores;

use std::{collections::BTreeSet, path::Path};

use sources::{Source, sources};

/// Every source that one of `rules` complains of is named, with its line.
fn complaints(rule: fn(&Source) -> Vec<String>) -> Vec<String> {
    sources().iter().flat_map(rule).collect()
}

fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn no_rust_file_is_too_long_to_read() {
    assert_none(&complaints(rules::length));
}

#[test]
fn nothing_is_left_for_later() {
    assert_none(&complaints(rules::unfinished));
}

#[test]
fn no_test_is_switched_off() {
    assert_none(&complaints(rules::switched_off));
}

#[test]
fn no_test_sleeps() {
    assert_none(&complaints(rules::sleeping_tests));
}

#[test]
fn lints_are_expected_and_never_allowed() {
    assert_none(&complaints(rules::allowed_lints));
}

#[test]
fn every_module_is_named_for_what_it_does() {
    assert_none(&complaints(rules::empty_names));
}

#[test]
fn no_old_name_comes_back() {
    let old = Source::new(
        "crates/duly/src/events.rs",
        "struct Bell;\n// The Bell of before.\nstruct Bells;\n".into(),
    );
    assert_eq!(names::banned(&old), ["crates/duly/src/events.rs:1: Bell is called EventBus"]);
    let complaints_of = |path: &str, text: &str| names::banned(&Source::new(path, text.into())).len();
    for (path, text) in [
        ("crates/duly/src/a.rs", "let told = ask(\"who\");"),
        ("crates/duly/src/a.rs", "let told = '\"'; // \"\n"),
        ("crates/duly/src/a.rs", "say(r#\"a \"text\" \"#); let told = 1;"),
        ("crates/streams/src/a.lua", "-- A comment.\nlocal told = redis.call('GET', KEYS[1])"),
        ("crates/server/src/a.js", "function look(at) { return `a ${at} 'text'`; }"),
        ("crates/duly/src/a.sql", "CREATE TABLE told (a text DEFAULT 'x'); -- told"),
    ] {
        assert_eq!(complaints_of(path, text), 1 + usize::from(text.starts_with("say")), "{text}");
    }
    for (path, text) in [
        ("crates/duly/src/a.rs", "call(\"it was told\\\" to look\"); /* told */ // told"),
        (
            "crates/duly/src/a.rs",
            "call(\"a line\n told\n\", r\"told\", r##\"told\"# told\"##, '\\'', b'\"');",
        ),
        ("crates/duly/src/a.rs", "fn a<'a>(b: &'a str) -> char { '\\'' }\n// told"),
        ("crates/streams/src/a.lua", "-- told\nreturn 'told', \"told\""),
        ("crates/server/src/a.js", "t('told'); // told\n/* told */"),
        ("docs/a.md", "It is told."),
    ] {
        assert_eq!(complaints_of(path, text), 0, "{text}");
    }
    assert_none(&complaints(names::banned));
}

#[test]
fn every_type_is_named_for_what_it_is() {
    let count = |path: &str, text: &str| names::vague_types(&Source::new(path, text.into())).len();
    let path = "crates/duly/src/a.rs";
    for text in [
        "struct Shared {",
        "pub(crate) enum Call<'a> {",
        "pub trait Helper {",
        "type Work<T> = Vec<T>;",
        "fn a() {\n    struct Part(u8);",
    ] {
        assert_eq!(count(path, text), 1, "{text}");
    }
    for text in [
        "struct SharedEngine {",
        "enum Isolation {\n    Shared,",
        "impl Body for A {\n    type Data = Bytes;",
        "use a::Kind;",
        "// struct Shared;",
    ] {
        assert_eq!(count(path, text), 0, "{text}");
    }
    assert_eq!(count("crates/core/src/record.rs", "pub enum State {"), 0, "users know it");
    assert_none(&complaints(names::vague_types));
}

#[test]
fn no_module_is_named_by_a_gerund() {
    let complaint = |path: &str| names::gerunds(&Source::new(path, String::new()));
    assert_eq!(complaint("crates/duly/src/sending.rs").len(), 1);
    assert_eq!(complaint("crates/duly/src/listening/mod.rs").len(), 1);
    assert!(complaint("crates/core/src/schedule/claim_timing.rs").is_empty());
    assert_none(&complaints(names::gerunds));
}

#[test]
fn no_struct_has_more_fields_than_one_reads_at_once() {
    let fields = |count: usize| {
        (0..count).map(|n| format!("    /// One.\n    pub(crate) f{n}: u8,\n")).collect::<String>()
    };
    let source =
        |count| Source::new("crates/duly/src/a.rs", format!("pub struct A<T> {{\n{}}}\n", fields(count)));
    assert_eq!(names::wide_structs(&source(15)), Vec::<String>::new());
    assert_eq!(names::wide_structs(&source(16)).len(), 1);
    let narrow =
        Source::new("crates/server/src/config/used.rs", "pub struct Config {\n    a: u8,\n}\n".into());
    assert_eq!(names::wide_structs(&narrow).len(), 1, "an exception that is none");
    assert_none(&complaints(names::wide_structs));
}

#[test]
fn no_exception_of_a_rule_is_stale() {
    assert!(names::stale_exceptions(&[]).len() >= 4, "without sources, every exception is stale");
    assert_none(&names::stale_exceptions(&sources()));
}

#[test]
fn the_median_file_is_short() {
    let lines = |sources: &[Source]| {
        let mut lines: Vec<_> = sources
            .iter()
            .filter(|source| source.is_rust())
            .map(|source| source.text.lines().count())
            .collect();
        lines.sort_unstable();
        lines[lines.len() / 2]
    };
    let of = |lines: usize| Source::new("a.rs", "\n".repeat(lines));
    assert_eq!(lines(&[of(1), of(400), of(151)]), 151);
    let median = lines(&sources());
    assert!(median <= rules::MEDIAN_MAX, "{median} lines, at most {}", rules::MEDIAN_MAX);
}

#[test]
fn every_crate_inherits_the_lints_of_the_workspace() {
    assert_none(&complaints(rules::own_lints));
}

#[test]
fn no_path_of_one_machine_is_written_down() {
    assert_none(&complaints(rules::machine_paths));
}

#[test]
fn every_async_method_says_what_a_dropped_call_leaves() {
    assert_none(&complaints(rules::dropped_midway));
}

#[test]
fn a_library_advises_nothing_that_only_the_server_has() {
    assert_none(&complaints(rules::advice_of_the_server));
}

#[test]
fn the_promises_and_the_list_of_faults_name_tests_that_exist() {
    let sources = sources();
    let tests: BTreeSet<&str> = sources.iter().flat_map(rules::functions).collect();
    for path in ["docs/reference/promises.md", "docs/faults.md"] {
        let page = sources.iter().find(|source| source.path == Path::new(path)).expect(path);
        let named: BTreeSet<&str> = rules::named_tests(page).collect();
        assert!(named.len() > 40, "{path} names only {} tests", named.len());
        let missing: Vec<_> = named.difference(&tests).collect();
        assert!(missing.is_empty(), "named in {path}, but no such test: {missing:?}");
    }
}

#[test]
fn the_rules_see_what_they_are_there_for() {
    let rust = |path: &str, text: String| Source::new(path, text);
    let src = |text: &str| rust("crates/a/src/b.rs", text.into());

    assert_eq!(rules::length(&src(&"\n".repeat(rules::LINES_MAX))).len(), 0);
    assert_eq!(rules::length(&src(&"\n".repeat(rules::LINES_MAX + 1))).len(), 1);
    assert_eq!(rules::unfinished(&src(concat!("fn a() { to", "do!() }"))).len(), 1);
    assert_eq!(rules::unfinished(&src(concat!("fn a() { unimpl", "emented!() }"))).len(), 1);
    assert_eq!(rules::switched_off(&src(concat!("#[test]\n#[ign", "ore]\nfn a() {}"))).len(), 1);
    assert_eq!(rules::allowed_lints(&src(concat!("#![al", "low(dead_code)]"))).len(), 1);

    let sleep = concat!("std::thread::sl", "eep(x)");
    assert_eq!(rules::sleeping_tests(&src(sleep)).len(), 0, "clippy looks after what is no test");
    assert_eq!(rules::sleeping_tests(&src(&format!("#[cfg(test)]\nmod tests {{ {sleep} }}"))).len(), 1);
    assert_eq!(rules::sleeping_tests(&rust("crates/a/tests/b.rs", sleep.into())).len(), 1);

    assert_eq!(rules::empty_names(&rust(concat!("crates/a/src/ut", "il.rs"), String::new())).len(), 1);
    assert_eq!(rules::empty_names(&rust(concat!("crates/a/src/hel", "pers/mod.rs"), String::new())).len(), 1);
    assert_eq!(rules::empty_names(&src(concat!("mod com", "mon { }"))).len(), 1);

    let manifest = |text: &str| rules::own_lints(&Source::new("crates/a/Cargo.toml", text.into())).len();
    assert_eq!(manifest("[package]\nname = \"a\"\n"), 1);
    assert_eq!(manifest("[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"), 0);

    let dropped = |path: &str, text: &str| rules::dropped_midway(&rust(path, text.into())).len();
    let (duly, said) = ("crates/duly/src/a.rs", "/// It is.\n/// Cancel safety: it is.\n");
    assert_eq!(dropped(duly, "/// It is.\npub async fn a() {}"), 1);
    assert_eq!(dropped(duly, &format!("{said}#[must_use]\npub async fn a() {{}}")), 0);
    assert_eq!(dropped(duly, &format!("{said}pub async fn a() {{}}\n\npub async fn b() {{}}")), 1);
    assert_eq!(dropped("crates/client/src/a.rs", "pub async fn a() {}"), 1);
    assert_eq!(dropped(duly, "pub fn a() -> impl Future<Output = ()> {}"), 1);
    assert_eq!(dropped(duly, "pub fn a(future: impl Future<Output = ()>) -> u8 {}"), 0, "it gives none");
    assert_eq!(
        dropped(duly, "pub fn a(\n    b: u8,\n) -> impl Future<Output = ()> {\n}"),
        1,
        "of several lines"
    );
    assert_eq!(dropped(duly, &format!("{said}pub fn a(\n    b: u8,\n) -> SendFuture {{\n}}")), 0);
    assert_eq!(dropped("crates/core/src/a.rs", "pub async fn a() {}"), 0, "it is not what users call");

    let advice = |text: &str| rules::advice_of_the_server(&rust("crates/stores/src/a.rs", text.into())).len();
    assert_eq!(advice("let a = \"allow it with store.allow_volatile\";"), 1);
    assert_eq!(advice("let a = \"it is lost; \\\n         set store.allow_volatile in duly.toml\";"), 1);
    assert_eq!(advice("let a = self.store.get(\"order\"); // store.allow_volatile"), 0);
    assert_eq!(advice("let a = \"there is no store. Open one\";"), 0);

    assert_eq!(rules::machine_paths(&src(concat!("\"/ho", "me/somebody/x\""))).len(), 1);
    assert_eq!(rules::machine_paths(&src(concat!("see crates/ho", "me/x"))).len(), 0);
}
