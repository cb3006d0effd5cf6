//! docs/glossary.md and the code agree: every word is used where the page says, and no word is used that the page replaces.

use std::{collections::BTreeSet, path::Path};

use crate::sources::{Source, sources};

/// Where the words are used that have no name of their own in the code: the text of the second column, and the folder.
const FOLDERS: [(&str, &str); 5] = [
    ("embedded store", "crates/stores/src/embedded"),
    ("stores on a server", "crates/stores/src"),
    ("store options", "crates/stores/src"),
    ("scheduler", "crates/core/src/schedule"),
    ("sinks", "crates/sinks/src"),
];

/// Crates whose public types have words of the glossary alone.
const LIBRARIES: [&str; 2] = ["crates/core/src", "crates/duly/src"];

/// The cells of every row of the table whose first column is `title`.
fn rows<'a>(page: &'a Source, title: &str) -> Vec<Vec<&'a str>> {
    let head = format!("| {title} |");
    let table = page.text.lines().skip_while(|line| !line.starts_with(&head)).skip(2);
    let rows = table.take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// What stands in backquotes.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

/// Whether a part of `name`, which is `Type::method`, a path of HTTP or a crate, is no longer there.
fn is_missing(name: &str, sources: &[Source], used: &BTreeSet<&str>) -> bool {
    let is_path_or_crate = name.contains(['/', '-']);
    if is_path_or_crate {
        return !sources.iter().any(|source| source.text.contains(&format!("\"{name}\"")));
    }
    name.split("::").any(|part| !used.contains(part))
}

/// `in flight` as text, as a name and as a type: `in flight`, `in-flight`, `in_flight`, `InFlight`.
fn is_used(word: &str, text: &str) -> bool {
    let type_name: String = word.split(' ').map(capitalized).collect();
    let forms = [word.to_owned(), word.replace(' ', "-"), word.replace(' ', "_"), type_name];
    forms.iter().any(|form| {
        let begins = |at: usize| !text[..at].ends_with(|before: char| before.is_ascii_lowercase());
        text.match_indices(form.as_str()).any(|(at, _)| begins(at))
    })
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

/// `InStoreDelivery` is `in`, `store`, `delivery`.
fn words_of_type(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for letter in name.chars() {
        match words.last_mut() {
            Some(word) if !letter.is_uppercase() => word.push(letter),
            _ => words.push(letter.to_lowercase().collect()),
        }
    }
    words
}

fn public_types(source: &Source) -> impl Iterator<Item = &str> {
    let types = source.text.lines().filter_map(|line| {
        let item = line.strip_prefix("pub ")?;
        ["struct ", "enum ", "trait ", "type "].iter().find_map(|kind| item.strip_prefix(kind))
    });
    types.filter_map(|rest| identifiers(rest).next())
}

fn page(sources: &[Source]) -> &Source {
    sources.iter().find(|source| source.path == Path::new("docs/glossary.md")).expect("docs/glossary.md")
}

#[test]
fn every_word_of_the_glossary_is_used_where_it_says() {
    let sources = sources();
    let is_code = |source: &&Source| source.is_rust() && source.path.starts_with("crates");
    let code: Vec<&Source> = sources.iter().filter(is_code).collect();
    let lines = code.iter().flat_map(|source| source.text.lines());
    let used: BTreeSet<&str> =
        lines.filter(|line| !line.trim_start().starts_with("//")).flat_map(identifiers).collect();
    let rows = rows(page(&sources), "word");
    assert!(rows.len() > 50, "{} words", rows.len());
    let mut complaints = Vec::new();
    for row in rows {
        let [words, place, _meaning] = row[..] else { panic!("three columns: {row:?}") };
        let gone = names(place).filter(|name| is_missing(name, &sources, &used));
        complaints.extend(gone.map(|name| format!("{words}: {name} is not in the code")));
        let folder = match FOLDERS.iter().find(|(text, _)| *text == place) {
            Some((_, folder)) => *folder,
            None if names(place).next().is_some() => "crates",
            None => panic!("{words}: {place:?} is neither a name of the code nor in FOLDERS"),
        };
        let is_there = |word: &str| {
            code.iter().any(|source| source.path.starts_with(folder) && is_used(word, &source.text))
        };
        let unused = words.split(", ").filter(|word| !is_there(word));
        complaints.extend(unused.map(|word| format!("{word} is not used in {folder}")));
    }
    crate::assert_none(&complaints);
}

#[test]
fn no_public_type_has_a_word_that_the_glossary_replaces() {
    let sources = sources();
    let rows = rows(page(&sources), "not");
    assert!(rows.len() > 5, "{} words", rows.len());
    let is_library = |source: &&Source| LIBRARIES.iter().any(|library| source.path.starts_with(library));
    let mut complaints = Vec::new();
    for source in sources.iter().filter(is_library).filter(|source| source.is_rust()) {
        for name in public_types(source) {
            let words = words_of_type(name);
            let replaced =
                rows.iter().find(|row| row[0].split(", ").any(|not| words.iter().any(|w| w == not)));
            complaints.extend(
                replaced
                    .map(|row| format!("{}: {name}: not {}, but {}", source.path.display(), row[0], row[1])),
            );
        }
    }
    crate::assert_none(&complaints);
}

/// The names of schemas and fields: what clients of every language read.
#[test]
fn no_name_of_the_openapi_file_has_a_word_that_the_glossary_replaces() {
    let sources = sources();
    let rows = rows(page(&sources), "not");
    let path = crate::dependencies::root().join("docs/reference/openapi.json");
    let text = std::fs::read_to_string(&path).expect("docs/reference/openapi.json");
    let api: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let schemas = api["components"]["schemas"].as_object().expect("schemas");
    let fields = |schema: &serde_json::Value| -> Vec<String> {
        let own = std::iter::once(schema).chain(schema["oneOf"].as_array().into_iter().flatten());
        own.filter_map(|part| part["properties"].as_object()).flat_map(|all| all.keys().cloned()).collect()
    };
    let mut complaints = Vec::new();
    let mut count = 0;
    for (schema, parts) in schemas {
        let named = std::iter::once((schema.clone(), words_of_type(schema)));
        let fields = fields(parts).into_iter().map(|field| {
            let words = field.split('_').map(str::to_owned).collect();
            (format!("{schema}.{field}"), words)
        });
        for (name, words) in named.chain(fields) {
            count += 1;
            let replaced =
                rows.iter().find(|row| row[0].split(", ").any(|not| words.iter().any(|w| w == not)));
            complaints.extend(replaced.map(|row| format!("{name}: not {}, but {}", row[0], row[1])));
        }
    }
    assert!(count > 200, "only {count} names");
    crate::assert_none(&complaints);
}

#[test]
fn words_are_found_as_text_name_and_type() {
    for text in ["in flight", "in-flight", "in_flight_max", "struct InFlightRequest", "(in flight"] {
        assert!(is_used("in flight", text), "{text}");
    }
    assert!(!is_used("lane", "a plane") && !is_used("in flight", "within flight"));
    assert_eq!(words_of_type("InStoreDelivery"), ["in", "store", "delivery"]);
    let source = Source::new("a.rs", "pub struct A<T>;\npub(crate) enum B {}\npub trait C: D {}\n".into());
    assert_eq!(public_types(&source).collect::<Vec<_>>(), ["A", "C"]);
}
