//! Every example runs in CI: by itself, or by a test that includes it and starts the server that it needs.

use std::path::Path;

use crate::sources::{Source, sources};

/// `cargo xtask test` runs these by themselves: `runs_alone` in `xtask/src/test.rs`.
fn runs_alone(example: &Path) -> bool {
    example.starts_with("crates/duly") || example == Path::new("crates/server/examples/openapi.rs")
}

/// The folder `examples` is the third part of `crates/<crate>/examples/<name>.rs`.
fn is_example(source: &Source) -> bool {
    source.is_rust() && source.path.iter().nth(2).is_some_and(|part| part == "examples")
}

/// The examples that neither run alone nor are included by a test.
fn never_run(sources: &[Source]) -> Vec<&Path> {
    let is_included = |example: &Path| {
        let ends: Vec<_> = example.iter().skip(2).filter_map(|part| part.to_str()).collect();
        let is_same = |path: &str, test: &Source| {
            // `../../examples/a.rs` is of the test's own crate, `../../../client/examples/a.rs` of the one that it names.
            let own = test.path.iter().nth(1);
            let named = path.trim_start_matches("../").split('/').collect::<Vec<_>>();
            let of = if named[0] == "examples" { own.and_then(|own| own.to_str()) } else { Some(named[0]) };
            named.ends_with(&ends) && of == example.iter().nth(1).and_then(|part| part.to_str())
        };
        let tests =
            sources.iter().filter(|source| source.path.iter().nth(2).is_some_and(|part| part == "tests"));
        tests
            .flat_map(|test| paths(test).map(move |path| (path, test)))
            .any(|(path, test)| is_same(path, test))
    };
    let examples = sources.iter().filter(|source| is_example(source)).map(|source| source.path.as_path());
    examples.filter(|example| !runs_alone(example) && !is_included(example)).collect()
}

/// What `#[path = "…"]` names.
fn paths(source: &Source) -> impl Iterator<Item = &str> {
    source.text.split("#[path = \"").skip(1).filter_map(|rest| rest.split('"').next())
}

#[test]
fn every_example_runs() {
    assert_eq!(never_run(&sources()), Vec::<&Path>::new(), "include each in a test that runs it");
}

#[test]
fn an_example_that_no_test_includes_is_seen() {
    let source = |path: &str, text: &str| Source::new(path, text.to_owned());
    let test = source("crates/a/tests/t/e.rs", "#[path = \"../../examples/one.rs\"]\nmod one;");
    let sources = [
        source("crates/a/examples/one.rs", ""),
        source("crates/a/examples/two.rs", ""),
        source("crates/b/examples/one.rs", ""),
        source("crates/duly/examples/alone.rs", ""),
        test,
    ];
    let never = ["crates/a/examples/two.rs", "crates/b/examples/one.rs"].map(Path::new);
    assert_eq!(never_run(&sources), never);
}
