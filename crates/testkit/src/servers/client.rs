//! The command-line client of a database, for statements of the test itself.

use std::{
    io::Write,
    process::{Command, Stdio},
};

/// Gives the statements to `client` and answers the rows, one per line, without a line end after the last. What the
/// server said, if it refused one.
pub(super) fn ask(client: &mut Command, statements: &str) -> Result<String, String> {
    client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = client.spawn().unwrap_or_else(|error| panic!("cannot start {client:?}: {error}"));
    let mut input = running.stdin.take().unwrap();
    let done = std::thread::scope(|threads| {
        // Beside the reading: statements and rows may both be more than a pipe holds.
        threads.spawn(move || {
            // A client that has failed reads no more, and says why.
            let _ = input.write_all(statements.as_bytes());
        });
        running.wait_with_output().unwrap()
    });
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}

/// A name for a database that nobody else has.
pub(super) fn fresh_name() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static LAST: AtomicU32 = AtomicU32::new(0);
    format!("t{}_{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed))
}
