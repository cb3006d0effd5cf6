//! Processes that die: by kill -9 under load, and by a handler that calls `abort`.

use std::path::Path;

use testkit::kill::{kill_loop, poisoned};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kill_loop");
/// Two hundred and more on demand: `cargo xtask chaos`.
const KILLS: u64 = 20;

#[test]
fn kill_9_under_load_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = kill_loop(Path::new(PROGRAM), folder.path(), KILLS, 1).unwrap();
    assert!(ledger.accepted() as u64 > 20 * KILLS, "{} accepted: that is no load", ledger.accepted());
}

#[test]
fn a_handler_that_aborts_is_given_up_at_its_limit_and_its_neighbours_are_delivered() {
    let folder = tempfile::tempdir().unwrap();
    let autopsy = poisoned(Path::new(PROGRAM), folder.path()).unwrap();
    assert!((3..=4).contains(&autopsy.deaths), "{autopsy:?}");
    for (id, state) in &autopsy.states {
        let expected = if id == "poison" { "dead" } else { "delivered" };
        assert_eq!(state, expected, "{id}: {autopsy:?}");
    }
    assert_eq!(autopsy.states.len(), 10);
}
