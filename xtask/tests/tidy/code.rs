//! The code of a source, without its comments and texts.

use crate::sources::Source;

/// How a language writes what is no code.
struct Syntax {
    line_comment: &'static str,
    block_comment: Option<(&'static str, &'static str)>,
    quotes: &'static [char],
    /// Whether a text may have line breaks.
    is_multiline: fn(char) -> bool,
    /// Rust: raw strings, and quotes of characters and lifetimes.
    is_rust: bool,
}

const RUST: Syntax = Syntax {
    line_comment: "//",
    block_comment: Some(("/*", "*/")),
    quotes: &['"'],
    is_multiline: |_| true,
    is_rust: true,
};
const LUA: Syntax = Syntax {
    line_comment: "--",
    block_comment: None,
    quotes: &['"', '\''],
    is_multiline: |_| false,
    is_rust: false,
};
const JAVASCRIPT: Syntax = Syntax {
    line_comment: "//",
    block_comment: Some(("/*", "*/")),
    quotes: &['"', '\'', '`'],
    is_multiline: |quote| quote == '`',
    is_rust: false,
};
const SQL: Syntax = Syntax {
    line_comment: "--",
    block_comment: Some(("/*", "*/")),
    quotes: &['\''],
    is_multiline: |_| true,
    is_rust: false,
};

/// The text with every comment and string literal left out and every line break kept; `None` if it is no code.
pub(crate) fn code(source: &Source) -> Option<String> {
    let syntax = match source.extension() {
        "rs" => &RUST,
        "lua" => &LUA,
        "js" => &JAVASCRIPT,
        "sql" => &SQL,
        _ => return None,
    };
    let mut code = String::with_capacity(source.text.len());
    let mut rest = source.text.as_str();
    while let Some(first) = rest.chars().next() {
        let skipped = skipped(rest, syntax);
        if skipped == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            // A space, so that what stands on both sides stays apart.
            code.push(' ');
            code.extend(rest[..skipped].chars().filter(|letter| *letter == '\n'));
            rest = &rest[skipped..];
        }
    }
    Some(code)
}

/// How many bytes at the front of `rest` are a comment or a literal.
fn skipped(rest: &str, syntax: &Syntax) -> usize {
    let until =
        |from: usize, end: &str| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    if rest.starts_with(syntax.line_comment) {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if let Some((_, end)) = syntax.block_comment.filter(|(begin, _)| rest.starts_with(begin)) {
        return until(2, end);
    }
    if syntax.is_rust {
        if let Some(after) = rest.strip_prefix("r#").or_else(|| rest.strip_prefix("r\"")) {
            let hashes = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
            // `r#type` is a name.
            if hashes == 0 || after.trim_start_matches('#').starts_with('"') {
                return until(hashes + 2, &format!("\"{}", "#".repeat(hashes)));
            }
        }
        if let Some(after) = rest.strip_prefix('\'') {
            let mut letters = after.char_indices();
            let is_escape = letters.next().is_some_and(|(_, letter)| letter == '\\');
            let second = letters.next();
            return match second {
                Some((at, '\'')) if !is_escape => at + 2,
                // After the escaped letter, which may be a quote itself.
                Some((at, _)) if is_escape => after[at + 1..].find('\'').map_or(0, |end| at + end + 3),
                // A lifetime.
                _ => 0,
            };
        }
    }
    let Some(quote) = rest.chars().next().filter(|first| syntax.quotes.contains(first)) else { return 0 };
    let mut is_escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        if letter == quote && !is_escaped {
            return at + letter.len_utf8();
        }
        if letter == '\n' && !(syntax.is_multiline)(quote) {
            return at;
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    rest.len()
}
