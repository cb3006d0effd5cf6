//! The parent's ledger, and its judgement.

use std::{collections::BTreeMap, fmt, fs, path::Path};

use super::IN_FLIGHT;

/// A broken promise, or a run that went wrong.
#[derive(Debug)]
pub struct Wrong(pub String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

#[derive(Debug, Default)]
struct Entry {
    due: u64,
    accepted: bool,
    cancel_asked: bool,
    /// Cancelled, and never delivered before.
    cancelled: bool,
    /// When each copy arrived.
    copies: Vec<u64>,
    state: Option<String>,
}

/// What the children reported, and what arrived.
#[derive(Debug, Default)]
pub struct Ledger {
    entries: BTreeMap<String, Entry>,
    unknown: Vec<String>,
    totals: Option<String>,
    /// How often a child was killed.
    pub kills: u64,
}

impl Ledger {
    /// Records one line of a child.
    pub(super) fn on_line(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["asked", id, due, "."] => self.entry(id).due = due.parse().unwrap(),
            ["accepted", id, "."] => self.entry(id).accepted = true,
            ["cancelling", id, "."] => self.entry(id).cancel_asked = true,
            ["cancelled", id, "."] => self.entry(id).cancelled = true,
            ["state", id, state, "."] => self.entry(id).state = Some(state.into()),
            ["totals", totals, "."] => self.totals = Some(totals.into()),
            _ => {}
        }
    }

    fn entry(&mut self, id: &str) -> &mut Entry {
        self.entries.entry(id.into()).or_default()
    }

    pub(super) fn read_target(&mut self, target: &Path) {
        for line in fs::read_to_string(target).unwrap().lines() {
            let words: Vec<_> = line.split(' ').collect();
            let [id, at, due] = words[..] else { continue };
            match self.entries.get_mut(id) {
                Some(entry) if entry.due.to_string() == due => entry.copies.push(at.parse().unwrap()),
                _ => self.unknown.push(line.into()),
            }
        }
    }

    /// Messages accepted for sure.
    pub fn accepted(&self) -> usize {
        self.entries.values().filter(|entry| entry.accepted).count()
    }

    /// Copies beyond the first.
    pub fn duplicates(&self) -> usize {
        self.entries.values().map(|entry| entry.copies.len().saturating_sub(1)).sum()
    }

    /// The most copies beyond the first that the kills explain: both lanes' in-flight limit, each time.
    pub fn duplicates_max(&self) -> usize {
        2 * IN_FLIGHT * self.kills as usize
    }

    /// I1 to I4; I5 is that the last child came to an end.
    pub(super) fn judge(self) -> Result<Self, Wrong> {
        for (id, entry) in &self.entries {
            let state = entry.state.as_deref();
            let broken = match state {
                None if entry.accepted => Some("I1: accepted and unknown"),
                Some("delivered") if entry.copies.is_empty() => {
                    Some("I1: called delivered and never arrived")
                }
                Some("dead") => Some("dead without cause"),
                Some("cancelled") if !entry.cancel_asked => Some("I1: cancelled by nobody"),
                _ if entry.copies.iter().any(|at| *at < entry.due) => Some("I2: early"),
                _ if entry.cancelled && !entry.copies.is_empty() => Some("I4: delivered and cancelled"),
                _ if !entry.copies.is_empty() && state.is_none() => Some("I1: delivered and unknown"),
                _ => None,
            };
            if let Some(broken) = broken {
                return Err(Wrong(format!("{broken}: {id} {entry:?}")));
            }
        }
        if let Some(line) = self.unknown.first() {
            return Err(Wrong(format!("nobody sent what arrived as {line:?}")));
        }
        if self.duplicates() > self.duplicates_max() {
            let (found, max) = (self.duplicates(), self.duplicates_max());
            return Err(Wrong(format!("I3: {found} duplicates where {max} are explained")));
        }
        if self.totals.as_deref() != Some("balance") {
            return Err(Wrong(format!("the totals: {:?}", self.totals)));
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run in which one message was accepted and delivered as it should be, and what `more` adds to it.
    fn judged(more: &[&str], target: &str) -> Result<(), String> {
        let mut ledger = Ledger { kills: 1, ..Ledger::default() };
        for line in ["asked a 100 .", "accepted a .", "totals balance ."].iter().chain(more) {
            ledger.on_line(line);
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("target"), target).unwrap();
        ledger.read_target(&folder.path().join("target"));
        ledger.judge().map(drop).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn every_broken_promise_is_found() {
        const DELIVERED: &str = "state a delivered .";
        assert_eq!(judged(&[DELIVERED], "a 100 100\n"), Ok(()));
        let broken = |more: &[&str], target: &str| judged(more, target).unwrap_err();
        assert!(broken(&[], "a 100 100\n").starts_with("I1: accepted and unknown"));
        assert!(broken(&[DELIVERED], "").starts_with("I1: called delivered"));
        assert!(broken(&["state a cancelled ."], "").starts_with("I1: cancelled by nobody"));
        assert!(broken(&["state a dead ."], "").starts_with("dead without cause"));
        assert!(broken(&[DELIVERED], "a 99 100\n").starts_with("I2"));
        assert!(broken(&[DELIVERED], &"a 100 100\n".repeat(2 * IN_FLIGHT + 2)).starts_with("I3"));
        let cancelled = ["cancelling a .", "cancelled a .", "state a cancelled ."];
        assert_eq!(judged(&cancelled, ""), Ok(()));
        assert!(broken(&cancelled, "a 100 100\n").starts_with("I4"));
        assert!(broken(&[DELIVERED], "a 100 100\nb 100 100\n").starts_with("nobody sent"));
        assert!(broken(&[DELIVERED, "totals differ ."], "a 100 100\n").starts_with("the totals"));
    }

    #[test]
    fn a_torn_last_word_is_not_heard() {
        let mut ledger = Ledger::default();
        ledger.on_line("accepted a");
        ledger.on_line("asked ab");
        assert_eq!(ledger.accepted(), 0);
    }
}
