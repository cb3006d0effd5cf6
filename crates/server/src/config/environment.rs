//! Environment variables, which override the file.
//!
//! `DULY__STORE__LEASE` is `store.lease`: two underscores between levels. `DULY__STORE__REDIS_FILE` names a file that holds the
//! value, for secrets. Names that stand in the file are found whatever their case; a new one is taken in lower case.

use std::fs;

use duly::Levels;

use super::{
    Origin, Problem,
    units::show_span,
    written::{Node, Table, Value},
};

const PREFIX: &str = "DULY__";
const FROM_FILE: &str = "_FILE";

/// Lays every variable of Duly over the file. Gives what was read from files that hold secrets.
pub(super) fn overlay(
    table: &mut Table,
    variables: &[(String, String)],
    problems: &mut Vec<Problem>,
) -> Vec<String> {
    let mut secrets = Vec::new();
    let mut ours: Vec<_> = variables.iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    ours.sort();
    for (name, value) in ours {
        let origin = Origin::Environment(name.clone());
        let (path, from_file) = split(&name[PREFIX.len()..]);
        let dotted = path.join(".").to_ascii_lowercase();
        let node = match from_file {
            true => match fs::read_to_string(value) {
                Ok(text) => {
                    let text = text.trim_end().to_owned();
                    secrets.push(text.clone());
                    Node { hidden: true, ..Node::new(Value::Text(text), origin.clone()) }
                }
                Err(error) => {
                    let detail = format!("the file {value:?} cannot be read: {error}");
                    problems.push(Problem::new(dotted, origin, detail));
                    continue;
                }
            },
            false => Node::new(Value::Text(value.clone()), origin.clone()),
        };
        if path.first().is_some_and(|first| first.eq_ignore_ascii_case("levels")) {
            // One more level in the environment is one more, not the only one.
            table.entry("levels".into()).or_insert_with(usual_levels);
        }
        if let Err(detail) = put(table, &path, node) {
            problems.push(Problem::new(dotted, origin, detail));
        }
    }
    secrets
}

fn split(name: &str) -> (Vec<&str>, bool) {
    let cut = name.len().saturating_sub(FROM_FILE.len());
    let from_file = name.get(cut..).is_some_and(|end| end.eq_ignore_ascii_case(FROM_FILE)) && cut > 0;
    let name = if from_file { &name[..cut] } else { name };
    (name.split("__").collect(), from_file)
}

fn put(table: &mut Table, path: &[&str], node: Node) -> Result<(), String> {
    let [name, deeper @ ..] = path else { return Ok(()) };
    if name.is_empty() {
        return Err("a name between two double underscores is missing".into());
    }
    let name = table
        .keys()
        .find(|known| known.eq_ignore_ascii_case(name))
        .cloned()
        .unwrap_or_else(|| name.to_ascii_lowercase());
    if deeper.is_empty() {
        if let Some(Origin::Environment(other)) = table.get(&name).map(|there| &there.origin) {
            return Err(format!("it is set twice, by this and by {other}; keep one"));
        }
        table.insert(name, node);
        return Ok(());
    }
    let origin = node.origin.clone();
    let inner = table.entry(name).or_insert_with(|| Node::new(Value::Table(Table::new()), origin));
    match &mut inner.value {
        Value::Table(inner) => put(inner, deeper, node),
        _ => Err(format!("nothing can be set below it: it is {}", inner.kind())),
    }
}

fn usual_levels() -> Node {
    let level = |(name, delay): (&str, _)| {
        (name.to_owned(), Node::new(Value::Text(show_span(delay)), Origin::Default))
    };
    Node::new(Value::Table(Levels::default().iter().map(level).collect()), Origin::Default)
}
