//! The report of an import from Redis.

use duly::Timestamp;
use serde::Serialize;

use super::super::{COMPLAINTS, clock};
use crate::{Failure, Output, output};
use duly_client::wire::NewMessage;

/// Messages shown by a dry run.
const EXAMPLES: usize = 3;
/// Sets shown in a table; JSON has all of them.
const ROWS: usize = 50;
/// Members that stay, named one by one; the others are counted.
const NAMED: usize = 1_000;

/// Everything, and set by set.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    dry_run: bool,
    kept: bool,
    messages: u64,
    overdue: u64,
    accepted: u64,
    duplicates: u64,
    removed: u64,
    left: u64,
    changed: u64,
    pub(super) keys: Vec<KeyReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    examples: Vec<NewMessage>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    complaints: Vec<Complaint>,
    #[serde(skip)]
    now_ms: u64,
}

/// One set.
#[derive(Debug, Serialize)]
pub(super) struct KeyReport {
    key: String,
    topic: Option<String>,
    messages: u64,
    overdue: u64,
    left: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    earliest_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latest_ms: Option<u64>,
}

/// A member that stays, or that changed under our hands.
#[derive(Debug, Serialize)]
struct Complaint {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<String>,
    why: String,
}

impl KeyReport {
    pub(super) fn new(key: &[u8], topic: Option<String>) -> Self {
        let key = String::from_utf8_lossy(key).into_owned();
        Self { key, topic, messages: 0, overdue: 0, left: 0, earliest_ms: None, latest_ms: None }
    }
}

impl Report {
    pub(super) fn new(dry_run: bool, kept: bool, now_ms: u64) -> Self {
        Self { dry_run, kept, now_ms, ..Self::default() }
    }

    /// A member of the latest set would become this message.
    pub(super) fn acceptable(&mut self, due: u64, message: &NewMessage) {
        self.count(due);
        if self.examples.len() < EXAMPLES {
            self.examples.push(message.clone());
        }
    }

    /// Duly has the message of a member of the latest set.
    pub(super) fn taken(&mut self, due: u64, duplicate: bool) {
        self.count(due);
        if duplicate { self.duplicates += 1 } else { self.accepted += 1 }
    }

    /// A member that stays is not counted here: each is counted once.
    fn count(&mut self, due: u64) {
        let overdue = u64::from(due <= self.now_ms);
        self.messages += 1;
        self.overdue += overdue;
        if let Some(key) = self.keys.last_mut() {
            key.messages += 1;
            key.overdue += overdue;
            key.earliest_ms = Some(key.earliest_ms.map_or(due, |earliest| earliest.min(due)));
            key.latest_ms = key.latest_ms.max(Some(due));
        }
    }

    pub(super) fn removed(&mut self) {
        self.removed += 1;
    }

    /// A member stays where it is.
    pub(super) fn left(&mut self, key: &[u8], member: &[u8], why: &str, print: impl FnOnce(&str)) {
        self.left += 1;
        if let Some(key) = self.keys.last_mut() {
            key.left += 1;
        }
        self.complain(key, Some(member), why, print);
    }

    /// A set stays where it is.
    pub(super) fn left_whole(&mut self, key: &[u8], count: u64, why: &str, print: impl FnOnce(&str)) {
        self.left += count;
        if let Some(key) = self.keys.last_mut() {
            key.left += count;
        }
        self.complain(key, None, why, print);
    }

    /// A member was taken, and is not as it was read.
    pub(super) fn changed(&mut self, key: &[u8], member: &[u8], why: &str, print: impl FnOnce(&str)) {
        self.changed += 1;
        self.complain(key, Some(member), why, print);
    }

    fn complain(&mut self, key: &[u8], member: Option<&[u8]>, why: &str, print: impl FnOnce(&str)) {
        let key = String::from_utf8_lossy(key).into_owned();
        let member = member.map(|member| String::from_utf8_lossy(member).into_owned());
        let count = (self.complaints.len() as u64) + 1;
        if count <= COMPLAINTS {
            let what = member.iter().fold(output::short(&key), |what, member| {
                format!("{what}, member {:?}", output::short(member))
            });
            print(&format!("{what}: {}", output::harmless(why)));
        } else if count == COMPLAINTS + 1 {
            print("there are more: -o json names them");
        }
        if self.complaints.len() < NAMED {
            self.complaints.push(Complaint { key, member, why: why.to_owned() });
        }
    }

    /// Words for a run that could not go on.
    pub(super) fn stopped(&self, out: &Output) {
        let (accepted, duplicates, removed) = (self.accepted, self.duplicates, self.removed);
        out.note(&format!(
            "stopped: {accepted} messages accepted, {duplicates} known before, {removed} taken out of their sets; \
             what was moved stands. Run it again to go on"
        ));
    }

    pub(super) fn print(mut self, out: &Output) -> Result<(), Failure> {
        out.answer(&self, |report| report.text(out))?;
        let sets = self.keys.len();
        if self.left > 0 {
            let verb = if self.dry_run { "would stay" } else { "stay" };
            return Err(Failure::failed(format!(
                "{} of the members of {sets} sets {verb} where they are",
                self.left
            )));
        }
        if self.changed > 0 {
            return Err(Failure::too_late(format!(
                "{} members changed while they were taken over: stop the old producers and consumers, look at each of these",
                self.changed
            )));
        }
        self.keys.clear();
        Ok(())
    }

    fn text(&self, out: &Output) -> String {
        let mut rows =
            out.table(&["SET", "TOPIC", ">MESSAGES", ">OVERDUE", ">STAY", "EARLIEST DUE", "LATEST DUE"]);
        let mut keys: Vec<_> = self.keys.iter().collect();
        keys.sort_by_key(|key| std::cmp::Reverse(key.messages + key.left));
        let time = |at: Option<u64>| at.map_or_else(String::new, |at| Timestamp::from_millis(at).to_string());
        for key in keys.iter().take(ROWS) {
            let topic = key.topic.as_deref().unwrap_or("-");
            let numbers = [key.messages, key.overdue, key.left].map(clock::grouped);
            let times = [time(key.earliest_ms), time(key.latest_ms)];
            rows.row([output::short(&key.key), output::short(topic)].into_iter().chain(numbers).chain(times));
        }
        let mut text = rows.text();
        if keys.len() > ROWS {
            text.push_str(&format!("… and {} sets more: -o json has them\n", keys.len() - ROWS));
        }
        text.push('\n');
        let grouped = clock::grouped;
        if self.dry_run {
            let (messages, overdue) = (grouped(self.messages), grouped(self.overdue));
            text.push_str(&format!(
                "{messages} would be moved, {overdue} of them are overdue and go out at once\n"
            ));
            for message in &self.examples {
                let json = serde_json::to_string(message).unwrap_or_default();
                text.push_str(&format!("example: {}\n", output::short(&json)));
            }
            return text;
        }
        let (accepted, duplicates) = (grouped(self.accepted), grouped(self.duplicates));
        let rest = match self.kept {
            true => "the sets are as they were".to_owned(),
            false => format!("{} taken out of their sets", grouped(self.removed)),
        };
        text.push_str(&format!("{accepted} accepted, {duplicates} known before; {rest}\n"));
        text
    }
}
