//! Servers that are jars, brought by `cargo xtask servers`.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{self, Write},
    path::PathBuf,
    sync::Mutex,
};

/// Whether `java` and the jars of `server` are there, as `list` names them. If not, its tests are skipped, out loud; with
/// `CI=true` that is a failure.
///
/// # Panics
/// With `CI=true`, if something is missing.
pub(super) fn installed(server: &'static str, list: &str) -> bool {
    super::installed(server, &["java"]) && found(server, list).is_some()
}

/// A file that was taken out of a jar, or nothing, which is said as for [`installed`].
///
/// # Panics
/// With `CI=true`, if it is not there.
pub(super) fn file(server: &'static str, list: &str, name: &str) -> Option<PathBuf> {
    found(server, list).map(|folder| folder.join(name))
}

fn found(server: &'static str, list: &str) -> Option<PathBuf> {
    static SAID: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let there = folder(server, list);
    if there.is_some() {
        return there;
    }
    let in_ci = env::var_os("CI").is_some_and(|value| value == "true");
    assert!(
        !in_ci,
        "the jars of {server} are not there, and with CI=true nothing is skipped: cargo xtask servers"
    );
    if SAID.lock().is_ok_and(|mut said| said.insert(server)) {
        let _ = writeln!(io::stderr(), "SKIPPED {server} (its jars are not there: cargo xtask servers)");
    }
    None
}

/// The folder of these jars, in the target folder that we were built into, if it is whole and for this list.
fn folder(server: &str, list: &str) -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let folders = program.ancestors().map(|folder| folder.join("servers").join(server));
    // The list is written there last.
    let is_whole =
        |folder: &PathBuf| fs::read_to_string(folder.join("pom.xml")).is_ok_and(|there| there == list);
    folders.into_iter().find(is_whole)
}

/// The words after `java` that start the class `main` of these jars, quickly and in little memory.
///
/// # Panics
/// If the jars are not there.
pub(super) fn words(server: &str, list: &str, settings: &[String], main: &str) -> Vec<String> {
    let folder = folder(server, list).unwrap_or_else(|| panic!("no jars of {server}: cargo xtask servers"));
    // It is about starting: nothing runs for long enough to be worth compiling well.
    let quick = ["-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"];
    let mut words: Vec<String> = quick.iter().map(ToString::to_string).collect();
    words.extend(settings.iter().cloned());
    words.extend(["-cp".into(), folder.join("*").display().to_string(), main.into()]);
    words
}
