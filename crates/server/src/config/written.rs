//! The configuration as written: a tree of values, each with where it came from.

use std::collections::BTreeMap;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Origin, Problem};

/// Names and what stands there.
pub(super) type Table = BTreeMap<String, Node>;

/// One value, and where it came from. Deliberately without `Debug`: it may be a secret.
#[derive(Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) origin: Origin,
    /// It was read from a file named by `…_FILE`, and is shown nowhere.
    pub(super) hidden: bool,
}

#[derive(Clone)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Flag(bool),
    Moment(toml::value::Datetime),
    List(Vec<Node>),
    Table(Table),
}

impl Node {
    pub(super) fn new(value: Value, origin: Origin) -> Self {
        Self { value, origin, hidden: false }
    }

    /// The type of the value, for the error of a wrong type.
    pub(super) fn kind(&self) -> &'static str {
        match self.value {
            Value::Text(_) => "text",
            Value::Integer(_) => "a whole number",
            Value::Float(_) => "a number with a point",
            Value::Flag(_) => "true or false",
            Value::Moment(_) => "a date or time",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// Whether it came as bare text, from the environment or a flag: then it may stand for a number or a list too.
    pub(super) fn is_bare(&self) -> bool {
        matches!(self.origin, Origin::Environment(_) | Origin::Flag(_))
    }

    /// The same value for serde.
    pub(super) fn to_toml(&self) -> toml::Value {
        match &self.value {
            Value::Text(text) => toml::Value::String(text.clone()),
            Value::Integer(number) => toml::Value::Integer(*number),
            Value::Float(number) => toml::Value::Float(*number),
            Value::Flag(flag) => toml::Value::Boolean(*flag),
            Value::Moment(moment) => toml::Value::Datetime(*moment),
            Value::List(list) => toml::Value::Array(list.iter().map(Self::to_toml).collect()),
            Value::Table(table) => toml::Value::Table(to_toml(table)),
        }
    }
}

pub(super) fn to_toml(table: &Table) -> toml::Table {
    table.iter().map(|(name, node)| (name.clone(), node.to_toml())).collect()
}

/// Reads a whole file. Its syntax errors are all told; a file that has some is not looked at any further, as what
/// stands behind them may not be what was meant.
pub(super) fn parse(text: &str) -> Result<Table, Vec<Problem>> {
    let (table, faults) = DeTable::parse_recoverable(text);
    let lines = Lines::new(text);
    let mut problems: Vec<Problem> = faults
        .iter()
        .map(|fault| {
            let line = lines.of(fault.span().map_or(0, |span| span.start));
            // Only the message: the rest of the error quotes the line, and that may hold a secret.
            Problem::new("", Origin::File { line }, format!("not TOML: {}", fault.message()))
        })
        .collect();
    let table = lines.table(table.get_ref(), "", &mut problems);
    if problems.is_empty() { Ok(table) } else { Err(problems) }
}

/// Reads one value, as the environment may hold it where a list is wanted. `None`: it is none.
pub(super) fn parse_value(text: &str, origin: &Origin) -> Option<Node> {
    let value = DeValue::parse(text).ok()?;
    let mut node = Lines::new(text).node(&value, "", &mut Vec::new());
    node.set_origin(origin);
    Some(node)
}

impl Node {
    fn set_origin(&mut self, origin: &Origin) {
        self.origin = origin.clone();
        match &mut self.value {
            Value::List(list) => list.iter_mut().for_each(|node| node.set_origin(origin)),
            Value::Table(table) => table.values_mut().for_each(|node| node.set_origin(origin)),
            _ => {}
        }
    }
}

/// Where each line of a text begins.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        Self(std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }

    fn of(&self, offset: usize) -> usize {
        self.0.partition_point(|begin| *begin <= offset)
    }

    fn table(&self, table: &DeTable<'_>, path: &str, problems: &mut Vec<Problem>) -> Table {
        let named = table.iter().map(|(name, value)| {
            let text = name.get_ref().to_string();
            let path = if path.is_empty() { text.clone() } else { format!("{path}.{text}") };
            let mut node = self.node(value, &path, problems);
            // The line of the name, not of the value: a table's value may begin with its first entry.
            node.origin = Origin::File { line: self.of(name.span().start) };
            (text, node)
        });
        named.collect()
    }

    fn node(&self, value: &Spanned<DeValue<'_>>, path: &str, problems: &mut Vec<Problem>) -> Node {
        let origin = Origin::File { line: self.of(value.span().start) };
        let mut too_large = || {
            let detail = "this number is too large";
            problems.push(Problem::new(path, origin.clone(), detail));
        };
        let value = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => {
                let read = i64::from_str_radix(number.as_str(), number.radix());
                Value::Integer(read.inspect_err(|_| too_large()).unwrap_or(0))
            }
            DeValue::Float(number) => {
                Value::Float(number.as_str().parse().inspect_err(|_| too_large()).unwrap_or(0.0))
            }
            DeValue::Boolean(flag) => Value::Flag(*flag),
            DeValue::Datetime(moment) => Value::Moment(*moment),
            DeValue::Array(list) => {
                Value::List(list.iter().map(|value| self.node(value, path, problems)).collect())
            }
            DeValue::Table(table) => Value::Table(self.table(table, path, problems)),
        };
        Node::new(value, origin)
    }
}
