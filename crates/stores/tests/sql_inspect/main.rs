//! Which databases are taken, and what is said of the others: real servers with settings that lose messages, users without rights.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod mysql;
mod postgres;

use duly_core::{Monotonic, Now, store::StoreError};
use duly_stores::{
    SqlStore,
    sql::{Finding, Inspection, Options, Weight, inspect},
};
use testkit::block_on;

fn open(url: &str, options: Options) -> Result<SqlStore, StoreError> {
    // Late enough that its node is there by the time of the server, too.
    let now = Now::new(4_000_000_000_000_000, Monotonic::from_micros(0));
    block_on(SqlStore::open(url, options, now))
}

fn inspection(url: &str) -> Inspection {
    block_on(inspect(url)).unwrap()
}

/// What was found there, if it is one thing.
fn only(url: &str) -> Finding {
    let mut findings = inspection(url).findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    findings.remove(0)
}

/// The store refuses to open, says why and what to do, and opens if it may.
fn refused_unless_allowed(url: &str, word: &str) {
    let found = inspection(url).findings;
    let named =
        found.iter().find(|finding| finding.what.contains(word) && finding.weight == Weight::Volatile);
    assert!(named.is_some(), "{word}: {found:?}");
    let error = open(url, Options::new(1)).unwrap_err().what;
    assert!(error.contains("allow_volatile"), "{error}");
    let store = open(url, Options { allow_volatile: true, ..Options::new(1) }).unwrap();
    let words = duly_core::Store::durability(&store).to_string();
    assert!(words.starts_with("server: ") && words.contains("as far as it is durable"), "{words}");
}

fn refused(url: &str, words: &[&str]) {
    let error = open(url, Options::new(1)).unwrap_err().what;
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
    assert!(!error.contains("planted"), "{error}");
    let error = block_on(inspect(url)).map(|seen| seen.findings).unwrap_err().what;
    assert!(words.iter().all(|word| error.contains(word)), "{error}");
}

#[test]
fn nobody_there_is_told_without_the_password() {
    for url in ["mysql://user:planted@127.0.0.1:1/duly", "postgres://user:planted@127.0.0.1:1/duly"] {
        refused(url, &["cannot be reached", "refused", "the address is right"]);
    }
}
