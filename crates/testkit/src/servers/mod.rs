//! Real servers as child processes, on free ports of the loopback and in folders of their own.
//!
//! A server is killed when its value is dropped, also by a panic, and when the test process dies in any other way.

pub mod activemq;
pub mod artemis;
pub mod chromium;
mod client;
pub mod database;
mod empty;
mod jars;
pub mod kafka;
pub mod mosquitto;
pub mod mysql;
pub mod nats;
mod port_lease;
pub mod postgres;
mod process;
pub mod program;
pub mod proxy;
pub mod python;
pub mod rabbitmq;
pub mod redis;
pub mod rocketmq;
mod user;

use std::{
    collections::BTreeSet,
    env,
    io::{self, Write},
    path::PathBuf,
    sync::Mutex,
    time::{Duration, Instant},
};

/// Whether all of `programs` are there. If one is not, the tests of `server` are skipped, out loud; with `CI=true` that is a
/// failure.
///
/// # Panics
/// With `CI=true`, if a program is missing.
pub fn installed(server: &'static str, programs: &[&str]) -> bool {
    let Some(missing) = programs.iter().find(|program| find(program).is_none()) else { return true };
    skip(server, &format!("not installed: no {missing}"));
    false
}

/// Says out loud, once, that tests of `what` are skipped; with `CI=true` that is a failure.
///
/// # Panics
/// With `CI=true`.
pub fn skip(what: &'static str, why: &str) {
    static SAID: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let in_ci = env::var_os("CI").is_some_and(|value| value == "true");
    assert!(!in_ci, "{what} ({why}), and with CI=true nothing is skipped: cargo xtask servers");
    if SAID.lock().is_ok_and(|mut said| said.insert(what)) {
        // Past the capturing of the test harness: a skip that nobody sees is a test that is not there.
        let _ = writeln!(io::stderr(), "SKIPPED {what} ({why})");
    }
}

fn find(program: &str) -> Option<PathBuf> {
    // Debian puts some servers where not everybody's path leads.
    let folders = on_the_path().chain(["/usr/sbin".into()]).chain(postgres::folders());
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn on_the_path() -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).collect::<Vec<_>>().into_iter()
}

/// Asks again and again until the answer is yes: a server of another make gives no other signal.
///
/// # Panics
/// If the answer is still no when `limit` is over.
pub fn wait_until(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let begin = now();
    while !is_so() {
        assert!(now() - begin < limit, "not within {limit:?}: {what}");
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "the time of a real server is real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "between two questions to a server that cannot call us")]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

#[cfg(test)]
mod tests;
