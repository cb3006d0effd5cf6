//! Tools written in Python, brought by `cargo xtask servers`.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{self, Write},
    path::PathBuf,
    sync::Mutex,
};

const LIST: &str = include_str!("../../python/requirements.txt");

/// A program of these tools. If it is not there, the test is skipped, out loud; with `CI=true` that is a failure.
///
/// # Panics
/// With `CI=true`, if it is missing.
pub fn tool(name: &'static str) -> Option<PathBuf> {
    static SAID: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    if let Some(folder) = folder() {
        return Some(folder.join("bin").join(name));
    }
    let in_ci = env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!in_ci, "{name} is not installed, and with CI=true nothing is skipped: cargo xtask servers");
    if SAID.lock().is_ok_and(|mut said| said.insert(name)) {
        let _ = writeln!(io::stderr(), "SKIPPED {name} (not installed: cargo xtask servers)");
    }
    None
}

/// In the target folder that we were built into, if it is whole and for this list.
fn folder() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let mut folders = program.ancestors().map(|folder| folder.join("servers").join("python"));
    // The list is written there last.
    folders
        .find(|folder| fs::read_to_string(folder.join("requirements.txt")).is_ok_and(|there| there == LIST))
}
