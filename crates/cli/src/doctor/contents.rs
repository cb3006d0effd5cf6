//! What is in the data folder: everything is read, and nothing changed.

use std::{path::Path, time::Duration};

use duly::{Clock, Now, SystemClock};
use duly_stores::{
    EmbeddedStore,
    embedded::{Verified, verify},
};

use super::{super::clock, Finding, State, disk};

const CHECK: &str = "stored messages";
/// After this long it is told how far the look came.
const WITHIN: Duration = Duration::from_secs(60);
const REMEDY: &str = "keep a copy of the folder as it is, and restore a backup, or start the server to deliver what can be read: what \
                      cannot becomes a dead letter";

/// Reads the folder, unless a server works on it or there is none. A server that starts meanwhile writes while it is read: what looks
/// damaged is told only if it does so twice, and no server runs.
pub(super) async fn check(data: &Path, is_running: bool) -> Option<Finding> {
    if !EmbeddedStore::is_in(data) {
        return None;
    }
    if is_running {
        return Some(not_looked_at());
    }
    let now = match SystemClock::new() {
        Ok(clock) => clock.now(),
        Err(error) => return Some(Finding::fail(CHECK, format!("no clock: {error}"), "see above")),
    };
    let mut finding = read(data, now).await;
    if finding.state == State::Fail && !disk::is_locked(data) {
        finding = read(data, now).await;
    }
    Some(if finding.state == State::Fail && disk::is_locked(data) { not_looked_at() } else { finding })
}

fn not_looked_at() -> Finding {
    Finding::ok(
        CHECK,
        "not looked at, as a server works on them: `duly backup --verify` reads a copy of them",
    )
}

async fn read(data: &Path, now: Now) -> Finding {
    let began = clock::instant();
    match verify(data, now, &mut |_| began.elapsed() < WITHIN).await {
        Ok(verified) if !verified.is_sound() => Finding::fail(CHECK, faults(&verified), REMEDY),
        Ok(verified) if verified.is_cut => {
            let count = clock::grouped(verified.messages);
            let detail = format!("the first {count} are as they were written; there was no time for more");
            let remedy = "`duly backup --verify` reads all of them";
            Finding::warn(CHECK, detail, remedy)
        }
        Ok(verified) => {
            let detail = format!("{} are as they were written", clock::grouped(verified.messages));
            Finding::ok(CHECK, detail)
        }
        Err(error) => Finding::fail(CHECK, error.to_string(), REMEDY),
    }
}

/// What is wrong, in words.
pub(crate) fn faults(verified: &Verified) -> String {
    let count = clock::grouped(verified.damaged.max(1));
    let mut words = format!("{count} cannot be read any more");
    for fault in &verified.faults {
        words.push_str("; ");
        words.push_str(fault);
    }
    words
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn what_a_server_writes_while_it_is_read_is_not_called_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let duly = duly::Duly::open(folder.path()).await.unwrap();
        duly.send(duly::Message::to("order").text("x".repeat(500)).after(duly::hours(1))).await.unwrap();
        duly.shutdown().await.unwrap();
        for file in fs::read_dir(folder.path()).unwrap() {
            let path = file.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            if let Some(at) = bytes.windows(100).position(|window| window == [b'x'; 100]) {
                bytes[at + 50] ^= 1;
                fs::write(&path, &bytes).unwrap();
            }
        }
        assert_eq!(check(folder.path(), false).await.unwrap().state, State::Fail);
        // A server that started after the doctor asked whether one runs.
        let lock = fs::OpenOptions::new().write(true).open(folder.path().join("lock")).unwrap();
        lock.lock().unwrap();
        assert_eq!(check(folder.path(), false).await.unwrap(), not_looked_at());
    }
}
