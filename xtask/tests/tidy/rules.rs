//! One rule per function: each gives a line of complaint per place. The forbidden words are written in halves, so that
//! the rules do not complain of themselves.

use crate::sources::Source;

/// Past this a file is several files.
pub(crate) const LINES_MAX: usize = 500;

/// Half of the files are no longer than this.
pub(crate) const MEDIAN_MAX: usize = 150;

const EMPTY_NAMES: [&str; 6] = [
    concat!("ut", "il"),
    concat!("ut", "ils"),
    concat!("com", "mon"),
    concat!("hel", "per"),
    concat!("hel", "pers"),
    "misc",
];

pub(crate) fn length(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    if !source.is_rust() || lines <= LINES_MAX {
        return Vec::new();
    }
    vec![format!("{}: {lines} lines, at most {LINES_MAX}: split it by what it does", source.path.display())]
}

pub(crate) fn unfinished(source: &Source) -> Vec<String> {
    rust_lines_with(
        source,
        &[concat!("to", "do!("), concat!("unimpl", "emented!(")],
        "finish it, or leave it out",
    )
}

pub(crate) fn switched_off(source: &Source) -> Vec<String> {
    rust_lines_with(source, &[concat!("#[ign", "ore")], "a test that never runs proves nothing")
}

pub(crate) fn allowed_lints(source: &Source) -> Vec<String> {
    let words = [concat!("#[al", "low("), concat!("#![al", "low(")];
    rust_lines_with(source, &words, "write #[expect(lint, reason = \"...\")]")
}

/// Elsewhere clippy's `disallowed-methods` asks for a reason; in a test there is none.
pub(crate) fn sleeping_tests(source: &Source) -> Vec<String> {
    let words = [concat!("thread::sl", "eep"), concat!("time::sl", "eep")];
    let is_test_file = source.path.components().any(|part| part.as_os_str() == "tests");
    let tests_begin = match source.text.lines().position(|line| line.trim() == "#[cfg(test)]") {
        _ if is_test_file => 0,
        Some(line) => line,
        None => return Vec::new(),
    };
    lines(source)
        .filter(|(number, line)| source.is_rust() && *number > tests_begin && has_any(line, &words))
        .map(|(number, _)| at(source, number, "wait for a signal, or move the manual clock"))
        .collect()
}

pub(crate) fn empty_names(source: &Source) -> Vec<String> {
    if !source.is_rust() {
        return Vec::new();
    }
    let of_path = source
        .path
        .iter()
        .filter_map(|part| part.to_str())
        .filter(|part| EMPTY_NAMES.contains(&part.trim_end_matches(".rs")))
        .map(|part| format!("{}: {part:?} says nothing: name it for what it does", source.path.display()));
    let of_modules = lines(source)
        .filter(|(_, line)| {
            let rest = line.trim().trim_start_matches("pub ").trim_start_matches("pub(crate) ");
            let name = rest.strip_prefix("mod ").and_then(|rest| rest.split([' ', ';', '{']).next());
            name.is_some_and(|name| EMPTY_NAMES.contains(&name))
        })
        .map(|(number, _)| at(source, number, "this name says nothing: name it for what it does"));
    of_path.chain(of_modules).collect()
}

pub(crate) fn own_lints(source: &Source) -> Vec<String> {
    let is_crate = source.name() == "Cargo.toml" && source.text.contains("[package]");
    if !is_crate || source.text.contains("[lints]\nworkspace = true") {
        return Vec::new();
    }
    vec![format!("{}: add [lints] workspace = true", source.path.display())]
}

pub(crate) fn machine_paths(source: &Source) -> Vec<String> {
    let roots = [concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/Us", "ers/")];
    lines(source)
        .filter(|(_, line)| {
            roots.iter().any(|root| line.match_indices(root).any(|(i, _)| begins_path(line, i)))
        })
        .map(|(number, _)| at(source, number, "a path of one machine"))
        .collect()
}

/// What becomes of a future that is dropped midway stands at every method that gives one to users.
pub(crate) fn dropped_midway(source: &Source) -> Vec<String> {
    let libraries = ["crates/client/src", "crates/duly/src", "crates/streams/src"];
    let is_library = libraries.iter().any(|library| source.path.starts_with(library));
    if !is_library || !source.is_rust() {
        return Vec::new();
    }
    let mut is_said = false;
    let mut found = Vec::new();
    let mut all = lines(source);
    while let Some((number, line)) = all.next() {
        let line = line.trim();
        match line {
            _ if line.starts_with("///") => is_said |= line.contains("Cancel safety: "),
            _ if line.starts_with("#[") => {}
            _ => {
                let is_async = line.starts_with("pub async fn ")
                    || line.starts_with("pub fn ") && gives_future(&signature(line, &mut all));
                if is_async && !is_said {
                    found.push(at(
                        source,
                        number,
                        "say under \"Cancel safety: \" what a dropped call leaves",
                    ));
                }
                is_said = false;
            }
        }
    }
    found
}

/// The whole signature of a function that begins with `first`.
fn signature<'a>(first: &str, rest: &mut impl Iterator<Item = (usize, &'a str)>) -> String {
    let mut signature = first.to_owned();
    while !signature.ends_with([';', '{', '}']) {
        let Some((_, line)) = rest.next() else { break };
        signature.push(' ');
        signature.push_str(line.trim());
    }
    signature
}

fn gives_future(signature: &str) -> bool {
    let before_bounds = signature.split(" where ").next().unwrap_or(signature);
    before_bounds.rsplit_once(") -> ").is_some_and(|(_, gives)| gives.contains("Future"))
}

/// Users of a library have neither the server's configuration nor its commands: advice in these words leads nowhere.
pub(crate) fn advice_of_the_server(source: &Source) -> Vec<String> {
    let libraries = ["core", "stores", "duly", "streams"].map(|library| format!("crates/{library}/src"));
    if !source.is_rust() || !libraries.iter().any(|library| source.path.starts_with(library)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut goes_on = false;
    for (number, line) in lines(source).filter(|(_, line)| !line.trim_start().starts_with("//")) {
        let literals = line.split('"').skip(usize::from(!goes_on)).step_by(2);
        if literals.into_iter().any(is_of_the_server) {
            found.push(at(
                source,
                number,
                "name what this library has, not a setting or a command of the server",
            ));
        }
        goes_on = line.ends_with('\\') && (goes_on || line.contains('"'));
    }
    found
}

/// Whether a text names the server's file, a section of it, or a command.
fn is_of_the_server(text: &str) -> bool {
    let names_setting = |section: &str| {
        text.match_indices(section).any(|(at, _)| {
            let (before, after) = (text[..at].chars().next_back(), text[at + section.len()..].chars().next());
            !before.is_some_and(char::is_alphanumeric) && after.is_some_and(|c| c.is_ascii_lowercase())
        })
    };
    has_any(text, &["duly.toml", "duly serve", "[store]"]) || names_setting("store.")
}

/// The names of all functions of a Rust file.
pub(crate) fn functions(source: &Source) -> impl Iterator<Item = &str> {
    let text = if source.is_rust() { source.text.as_str() } else { "" };
    text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next()).map(str::trim)
}

/// What a page shows as `like_this_test_name`: at least three words, as our tests are sentences.
pub(crate) fn named_tests(page: &Source) -> impl Iterator<Item = &str> {
    page.text.split('`').skip(1).step_by(2).filter(|word| {
        let is_name = word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        is_name && word.split('_').count() >= 3
    })
}

fn rust_lines_with(source: &Source, words: &[&str], advice: &str) -> Vec<String> {
    lines(source)
        .filter(|(_, line)| source.is_rust() && has_any(line, words))
        .map(|(number, _)| at(source, number, advice))
        .collect()
}

fn lines(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    source.text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

fn has_any(line: &str, words: &[&str]) -> bool {
    words.iter().any(|word| line.contains(word))
}

/// Whether the slash at `index` begins a path, rather than standing inside of one.
fn begins_path(line: &str, index: usize) -> bool {
    let before = line[..index].chars().next_back();
    !before.is_some_and(|c| c.is_alphanumeric() || "._-/*}".contains(c))
}

fn at(source: &Source, line: usize, advice: &str) -> String {
    format!("{}:{line}: {advice}", source.path.display())
}
