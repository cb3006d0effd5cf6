//! The contents of the data folder. Everything is read, and nothing is changed.

use std::{path::Path, time::Duration};

use duly::{Clock, MessageId, Now, StoreError, StoreErrorKind, SystemClock};
use duly_stores::embedded::{FolderContents, Verified, inspect, verify};

use super::{super::clock, Finding, Severity, disk};

const CHECK: &str = "stored messages";
/// After this long it is told how far the look came.
const WITHIN: Duration = Duration::from_secs(60);
const REMEDY: &str = "keep a copy of the folder as it is, and restore a backup, or start the server to deliver what can be read: what \
                      cannot becomes a dead letter";

/// Reads the folder, unless a server works on it or there is none. A server that starts meanwhile writes while it is read: what looks
/// damaged is told only if it does so twice, and no server runs. A folder that a server refuses is told with what the server would say.
pub(super) async fn check(data: &Path, is_running: bool) -> Option<Finding> {
    match inspect(data) {
        Ok(FolderContents::Nothing) => return None,
        Ok(_) => {}
        Err(error) => return Some(refused(&error)),
    }
    if is_running {
        return Some(not_looked_at());
    }
    let now = match SystemClock::new() {
        Ok(clock) => clock.now(),
        Err(error) => return Some(Finding::fail(CHECK, format!("no clock: {error}"), "see above")),
    };
    let mut finding = read(data, now).await;
    if finding.state == Severity::Fail && !disk::is_locked(data) {
        finding = read(data, now).await;
    }
    Some(if finding.state == Severity::Fail && disk::is_locked(data) { not_looked_at() } else { finding })
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
        Ok(verified) if verified.claims_log_missing => {
            let count = clock::grouped(verified.messages);
            let detail =
                format!("{count} are as they were written, but the log of claims (claims-*) is missing");
            let remedy = "no message is lost; what was in flight may be delivered again without a counted attempt: find out who \
                          removes files from the data folder";
            Finding::warn(CHECK, detail, remedy)
        }
        Ok(verified) => {
            let detail = format!("{} are as they were written", clock::grouped(verified.messages));
            Finding::ok(CHECK, detail)
        }
        Err(error) => refused(&error),
    }
}

/// A server does not open the folder.
fn refused(error: &StoreError) -> Finding {
    let remedy = match error.kind {
        StoreErrorKind::Damaged => {
            "`duly serve` refuses this folder: do what the error says, or keep a copy of the folder as it is and restore a backup"
        }
        StoreErrorKind::Full => "make room: `duly serve` does not open the folder without it",
        _ => {
            "`duly serve` cannot open this folder either: see that its user may read the folder and all files in it, and that the \
             disk is sound"
        }
    };
    Finding::fail(CHECK, error.to_string(), remedy)
}

/// The fault in words.
pub(crate) fn faults(verified: &Verified) -> String {
    let count = clock::grouped(verified.damaged.max(1));
    let mut words = format!("{count} cannot be read any more");
    if !verified.damaged_ids.is_empty() {
        words.push_str(&format!(": {}", named(verified)));
    }
    for fault in &verified.faults {
        words.push_str("; ");
        words.push_str(fault);
    }
    words
}

/// The ids of messages that cannot be read, and how many more there are.
fn named(verified: &Verified) -> String {
    let ids: Vec<_> = verified.damaged_ids.iter().map(MessageId::as_str).collect();
    let words = ids.join(", ");
    match unnamed(verified) {
        0 => words,
        more => format!("{words} and {} more", clock::grouped(more)),
    }
}

/// How many messages cannot be read beside those that are named.
pub(crate) fn unnamed(verified: &Verified) -> u64 {
    verified.damaged.saturating_sub(verified.damaged_ids.len() as u64)
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
        assert_eq!(check(folder.path(), false).await.unwrap().state, Severity::Fail);
        // A server that started after the doctor asked whether one runs.
        let lock = fs::OpenOptions::new().write(true).open(folder.path().join("lock")).unwrap();
        lock.lock().unwrap();
        assert_eq!(check(folder.path(), false).await.unwrap(), not_looked_at());
    }
}
