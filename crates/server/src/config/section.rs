//! A typed reader: takes settings out of the tree, and collects what is wrong instead of stopping at it.

use std::{collections::BTreeSet, fmt::Display, ops::RangeInclusive, path::PathBuf, time::Duration};

use serde::Serialize;
use serde_json::Value as Json;

use super::{
    Origin, Problem,
    secret::{MASK, mask_url},
    suggest::did_you_mean,
    units::{show_size, show_span},
    written::{Node, Table, Value},
};

/// One setting as it is used.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    /// Its path: `sinks.orders.timeout`.
    pub path: String,
    /// The value in use. Secrets are masked; `null` means not set.
    pub value: Json,
    /// The file or variable it came from.
    pub from: Origin,
    /// The line, if it came from the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

/// The values and problems found so far.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) problems: Vec<Problem>,
    pub(super) settings: Vec<Setting>,
    /// Every setting that was asked for, with `*` in place of names that users choose.
    pub(super) known: BTreeSet<String>,
}

impl Reading {
    /// Whether something is wrong there already: then nothing is to be concluded from its value.
    pub(super) fn is_faulty(&self, path: &str) -> bool {
        self.problems.iter().any(|problem| problem.path == path)
    }

    /// Where the value of a setting was written; `None` if it is as usual.
    pub(super) fn written_at(&self, path: &str) -> Option<Origin> {
        let noted = self.settings.iter().rev().find(|setting| setting.path == path)?;
        Some(noted.from.clone()).filter(|from| *from != Origin::Default)
    }
}

/// A table that is being read.
pub(super) struct Section<'r> {
    pub(super) reading: &'r mut Reading,
    pub(super) path: String,
    pattern: String,
    pub(super) origin: Origin,
    table: Table,
    asked: Vec<&'static str>,
}

impl<'r> Section<'r> {
    /// Reads the whole tree; what nobody asked for is unknown.
    pub(super) fn read_all<T>(
        reading: &'r mut Reading,
        table: Table,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> T {
        let (path, pattern) = (String::new(), String::new());
        let mut top = Section { reading, path, pattern, origin: Origin::Default, table, asked: Vec::new() };
        let done = read(&mut top);
        top.complain_of_the_rest();
        done
    }

    /// Where `key` stands.
    pub(super) fn at(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// Reports a fault of `key`.
    pub(super) fn fault(&mut self, key: &str, origin: &Origin, detail: impl Into<String>) {
        let path = if key.is_empty() { self.path.clone() } else { self.at(key) };
        self.reading.problems.push(Problem::new(path, origin.clone(), detail));
    }

    /// Records the value in use for `key`.
    pub(super) fn note(&mut self, key: &str, origin: &Origin, value: Json) {
        let value = if origin.is_secret_file() { MASK.into() } else { value };
        let setting = Setting { path: self.at(key), value, from: origin.clone(), line: origin.line() };
        self.reading.settings.push(setting);
    }

    /// The value of `key`, if it was written.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Node> {
        self.expect(key);
        self.table.remove(key)
    }

    /// A setting of earlier versions that nothing ever used: whoever wrote it is told, and not left to think that it works.
    pub(super) fn removed(&mut self, key: &str) {
        if let Some(node) = self.table.remove(key) {
            self.fault(key, &node.origin, "this setting is gone: it never had an effect, remove it");
        }
    }

    /// A setting of earlier versions under another name. Its value is not used: two names for one thing would have to agree.
    pub(super) fn renamed(&mut self, old: &str, new: &str) {
        if let Some(node) = self.table.remove(old) {
            self.fault(old, &node.origin, format!("it is called {new} now"));
        }
    }

    /// Whether `key` was written and not yet taken.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// The value of `key`, which stays in the section.
    pub(super) fn peek(&self, key: &str) -> Option<&Node> {
        self.table.get(key)
    }

    /// Makes `key` known: it belongs here, and somebody else reads it.
    pub(super) fn expect(&mut self, key: &'static str) {
        self.asked.push(key);
        self.reading.known.insert(join(&self.pattern, key));
    }

    /// Where the value of `key` came from.
    pub(super) fn origin_of(&self, key: &str) -> Origin {
        let path = self.at(key);
        let noted = self.reading.settings.iter().rev().find(|setting| setting.path == path);
        noted.map_or(&self.origin, |setting| &setting.from).clone()
    }

    /// Whether `key` was written, here or elsewhere, and read.
    pub(super) fn is_written(&self, key: &str) -> bool {
        self.reading.written_at(&self.at(key)).is_some()
    }

    /// Everything that is left, taken out.
    pub(super) fn rest(&mut self) -> Table {
        std::mem::take(&mut self.table)
    }

    /// Everything that is left but these, taken out.
    pub(super) fn rest_but(&mut self, keys: &[&str]) -> Table {
        let (kept, rest) = self.rest().into_iter().partition(|(key, _)| keys.contains(&key.as_str()));
        self.table = kept;
        rest
    }

    /// Reads `key` with `read`; if it is not written or wrong, `default` is used.
    pub(super) fn value<T>(
        &mut self,
        key: &'static str,
        default: T,
        read: impl FnOnce(&Node) -> Result<T, String>,
        show: impl FnOnce(&T) -> Json,
    ) -> T {
        let Some(node) = self.take(key) else {
            self.note(key, &Origin::Default, show(&default));
            return default;
        };
        match read(&node) {
            Ok(value) => {
                self.note(key, &node.origin, show(&value));
                value
            }
            Err(detail) => {
                let detail = if node.hidden { hidden_fault(&node) } else { detail };
                self.fault(key, &node.origin, detail);
                default
            }
        }
    }

    /// Reads `key` with `read` if it is written; if not, nothing is said of it.
    pub(super) fn optional<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Node) -> Result<T, String>,
        show: impl FnOnce(&T) -> Json,
    ) -> Option<T> {
        if !self.has(key) {
            self.expect(key);
            return None;
        }
        let show = |value: &Option<T>| value.as_ref().map_or(Json::Null, show);
        self.value(key, None, |node| read(node).map(Some), show)
    }

    /// Two spans of which the first may not be the longer.
    pub(super) fn ascending(&mut self, low: &str, from: Duration, high: &str, to: Duration) {
        let faulty = [low, high].iter().any(|key| self.reading.is_faulty(&self.at(key)));
        if from > to && !faulty {
            let origin = self.origin_of(low).max(self.origin_of(high));
            let (from, to) = (show_span(from), show_span(to));
            // A written value is at fault, never a default.
            if self.is_written(high) && !self.is_written(low) {
                self.fault(high, &origin, format!("it is {to}, shorter than {low}, which is {from}"));
            } else {
                self.fault(low, &origin, format!("it is {from}, longer than {high}, which is {to}"));
            }
        }
    }

    /// A span of time within `range`.
    pub(super) fn span(
        &mut self,
        key: &'static str,
        default: Duration,
        range: RangeInclusive<Duration>,
    ) -> Duration {
        self.value(key, default, |node| within(node.span()?, &range, |span| show_span(*span)), show_as_span)
    }

    /// A whole number within `range`.
    pub(super) fn number<N>(&mut self, key: &'static str, default: N, range: RangeInclusive<N>) -> N
    where
        N: TryFrom<i64> + PartialOrd + Display + Copy + Into<Json>,
    {
        self.value(key, default, |node| node.number(&range), |number| (*number).into())
    }

    /// A size in bytes within `range`.
    pub(super) fn size(&mut self, key: &'static str, default: usize, range: RangeInclusive<usize>) -> usize {
        let read = |node: &Node| within(node.size()?, &range, |size| show_size(*size as u64));
        self.value(key, default, read, |size| show_size(*size as u64).into())
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, key: &'static str, default: bool) -> bool {
        self.value(key, default, Node::flag, |flag| (*flag).into())
    }

    /// Text that need not be there.
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        let show = |text: &Option<String>| text.as_deref().map_or(Json::Null, |text| mask_url(text).into());
        self.value(key, None, |node| node.text().map(|text| Some(text.into())), show)
    }

    /// The path of a file that need not be named.
    pub(super) fn file(&mut self, key: &'static str) -> Option<PathBuf> {
        self.text(key).map(PathBuf::from)
    }

    /// A table of its own; empty if it is not written.
    pub(super) fn table<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let node = self.take(key);
        self.inner(key, key, node, read)
    }

    /// Tables under names that users choose.
    pub(super) fn named_tables<T>(
        &mut self,
        mut read: impl FnMut(&str, &mut Section<'_>) -> T,
    ) -> Vec<(String, T)> {
        let tables = self.rest();
        tables
            .into_iter()
            .map(|(name, node)| {
                let done = self.inner(&quoted(&name), "*", Some(node), |section| read(&name, section));
                (name, done)
            })
            .collect()
    }

    /// A list of tables.
    pub(super) fn tables<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut Section<'_>) -> T,
    ) -> Vec<T> {
        let Some(node) = self.take(key) else { return Vec::new() };
        let list = match node.list() {
            Ok(list) => list,
            Err(detail) => {
                self.fault(key, &node.origin, detail);
                return Vec::new();
            }
        };
        let mut done = Vec::with_capacity(list.len());
        for (index, node) in list.into_iter().enumerate() {
            let (path, pattern) = (format!("{key}[{index}]"), format!("{key}[]"));
            done.push(self.inner(&path, &pattern, Some(node), &mut read));
        }
        done
    }

    fn inner<T>(
        &mut self,
        key: &str,
        pattern: &str,
        node: Option<Node>,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> T {
        let (table, origin) = match node {
            None => (Table::new(), self.origin.clone()),
            Some(Node { value: Value::Table(table), origin, .. }) => (table, origin),
            Some(node) => {
                let detail = format!("a table is wanted here; this is {}", node.kind());
                self.fault(key, &node.origin, detail);
                (Table::new(), node.origin)
            }
        };
        let (path, pattern) = (self.at(key), join(&self.pattern, pattern));
        let mut section = Section { reading: self.reading, path, pattern, origin, table, asked: Vec::new() };
        let done = read(&mut section);
        section.complain_of_the_rest();
        done
    }

    fn complain_of_the_rest(&mut self) {
        for (key, node) in self.rest() {
            let suggestion = did_you_mean(&key, self.asked.iter().copied());
            let known = if suggestion.is_empty() && !self.asked.is_empty() {
                format!("; known here: {}", self.asked.join(", "))
            } else {
                String::new()
            };
            self.fault(&quoted(&key), &node.origin, format!("there is no such setting{suggestion}{known}"));
        }
    }
}

pub(super) fn within<T: PartialOrd>(
    value: T,
    range: &RangeInclusive<T>,
    show: impl Fn(&T) -> String,
) -> Result<T, String> {
    if range.contains(&value) {
        return Ok(value);
    }
    let (value, from, to) = (show(&value), show(range.start()), show(range.end()));
    Err(format!("{value} is out of range: it must be from {from} to {to}"))
}

pub(super) fn hidden_fault(node: &Node) -> String {
    format!("what stands in the file that {} names cannot be used here", node.origin)
}

fn show_as_span(span: &Duration) -> Json {
    show_span(*span).into()
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.into() } else { format!("{path}.{key}") }
}

/// A name as TOML would have it in a path.
fn quoted(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { name.into() } else { format!("{name:?}") }
}
