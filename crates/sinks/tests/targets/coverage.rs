//! What is shown of each target, and where: the table at the end of each sink's `docs.md`.

use std::{collections::BTreeMap, fs, path::Path};

use testkit::sink::CannotShow;

/// Where a row of the table says that something is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// By the suite.
    Suite,
    /// By tests of the sink, by their names.
    Tests(Vec<String>),
    /// Nowhere, and why not.
    No(String),
}

/// The head of the table.
const HEAD: &str = "| one destination or server among several";
/// Its rows. The last two are no cases of the suite: a sink's own tests show them, where its cluster runs.
pub(crate) const ROWS: [&str; 7] = [
    "slow",
    "silent",
    "forbidden",
    "full",
    "partial batch",
    "leader change under load",
    "node killed under load",
];

/// The rows of which the suite has a case.
pub(crate) const IN_SUITE: &[&str] = ROWS.split_at(5).0;

/// A sink and a form of its target, as a column of its table is called.
pub(crate) type Column = (&'static str, &'static str);

/// All of them. Those of the suite are named in `conformance.rs`.
pub(crate) const COLUMNS: [Column; 13] = [
    ("webhook", "shown by"),
    ("redis_streams", "one server"),
    ("redis_streams", "cluster"),
    ("redis_streams", "sentinels"),
    ("rabbitmq", "shown by"),
    ("nats", "JetStream"),
    ("nats", "core"),
    ("kafka", "shown by"),
    ("rocketmq", "shown by"),
    ("activemq", "ActiveMQ"),
    ("activemq", "Artemis"),
    ("mqtt", "Mosquitto"),
    ("mqtt", "Artemis"),
];

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What the documentation of the sink says, by row.
pub(crate) fn table((sink, column): Column) -> BTreeMap<String, Coverage> {
    let docs = fs::read_to_string(folder().join("src").join(sink).join("docs.md")).unwrap();
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = docs.lines().skip_while(|line| !line.starts_with(HEAD));
    let head = cells(lines.next().unwrap_or_else(|| panic!("{sink}: there is no table of what is shown")));
    let position =
        head.iter().position(|name| name == column).unwrap_or_else(|| panic!("{sink}: no {column}"));
    let rows = lines.skip(1).take_while(|line| line.starts_with('|')).map(cells);
    rows.map(|row| (row[0].clone(), coverage(&row[position]))).collect()
}

fn coverage(cell: &str) -> Coverage {
    match cell {
        "suite" => Coverage::Suite,
        cell if cell.starts_with('`') => {
            Coverage::Tests(cell.split(", ").map(|name| name.trim_matches('`').to_owned()).collect())
        }
        cell => Coverage::No(cell.strip_prefix("no: ").expect("no, and why").to_owned()),
    }
}

/// Why the suite does not show a state of this target, if it does not.
pub(crate) fn cannot_show(column: Column, state: &str) -> Option<CannotShow> {
    match table(column).get(state).expect("every state has a row") {
        Coverage::Suite => None,
        Coverage::Tests(names) => Some(CannotShow(format!("shown by {}", names.join(", ")))),
        Coverage::No(why) => Some(CannotShow(why.clone())),
    }
}

/// Whether the sink has a test of this name.
pub(crate) fn has_test(sink: &str, name: &str) -> bool {
    let files = fs::read_dir(folder().join("tests").join(sink)).unwrap();
    let mut texts = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    texts.any(|text| text.contains(&format!("fn {name}(")))
}

/// A row of the tables of what an answer means: its words, and the tests that it names.
pub(crate) struct AnswerRow {
    pub(crate) row: String,
    pub(crate) tests: Vec<String>,
}

/// What the documentation of the sink says about answers.
pub(crate) fn answers(sink: &str) -> Vec<AnswerRow> {
    let docs = fs::read_to_string(folder().join("src").join(sink).join("docs.md")).unwrap();
    let lines = docs.lines().skip_while(|line| *line != "# What an answer means").skip(1);
    let lines = lines.take_while(|line| !line.starts_with("# "));
    let rows = lines.filter(|line| line.starts_with("| ") && !line.starts_with("| answer"));
    // Words between backticks stand in every second place. Settings and codes have fewer words than a test has.
    let tests = |row: &str| {
        let quoted = row.split('`').skip(1).step_by(2).filter(|name| name.matches('_').count() >= 3);
        quoted.filter(|name| !name.contains(char::is_uppercase)).map(str::to_owned).collect()
    };
    rows.map(|row| AnswerRow { row: row.to_owned(), tests: tests(row) }).collect()
}

/// Whether there is a test of this name: of the sink, of its units, or a case of the suite. `…` at its end stands for the rest of it.
pub(crate) fn has_answer_test(sink: &str, name: &str) -> bool {
    let head = match name.strip_suffix('…') {
        Some(begin) => format!("fn {begin}"),
        None => format!("fn {name}("),
    };
    let (tests, units) = (folder().join("tests").join(sink), folder().join("src").join(sink));
    let suite = folder().join("../conformance/src/sink");
    [tests, units, suite].iter().any(|below| contains(below, &head))
}

fn contains(below: &Path, text: &str) -> bool {
    fs::read_dir(below).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => contains(&path, text),
            false => fs::read_to_string(&path).unwrap().contains(text),
        }
    })
}
