//! A record outside the server of what was sent, accepted and received.

use std::{
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::Write as _,
    path::Path,
    sync::{Mutex, PoisonError},
};

use crate::Failure;

/// The file. Every entry is written at once: what stands in it happened, whatever is killed later.
pub(crate) struct Ledger {
    file: Mutex<File>,
}

impl Ledger {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file =
            file.map_err(|e| Failure::failed(format!("cannot open the ledger {}: {e}", path.display())))?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// One line `WORD ID` per id.
    pub(crate) fn ids<'a>(&self, word: &str, ids: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
        let mut text = String::new();
        for id in ids {
            let _ = writeln!(text, "{word} {id}");
        }
        self.write(&text)
    }

    /// One line `received ID DUE_MS AT_MS` each.
    pub(crate) fn received<'a>(
        &self,
        messages: impl Iterator<Item = (&'a str, u64)>,
        at_ms: u64,
    ) -> Result<(), Failure> {
        let mut text = String::new();
        for (id, due_ms) in messages {
            let _ = writeln!(text, "received {id} {due_ms} {at_ms}");
        }
        self.write(&text)
    }

    fn write(&self, text: &str) -> Result<(), Failure> {
        // One call for all lines: those of two connections never mix.
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(text.as_bytes()).map_err(|e| Failure::failed(format!("cannot write the ledger: {e}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_is_added_to_and_never_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        Ledger::open(&path).unwrap().ids("sent", ["a", "b"].into_iter()).unwrap();
        let again = Ledger::open(&path).unwrap();
        again.ids("accepted", ["a"].into_iter()).unwrap();
        again.received([("a", 5)].into_iter(), 7).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "sent a\nsent b\naccepted a\nreceived a 5 7\n");
    }
}
