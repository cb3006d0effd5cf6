//! Data on stdout, words on stderr.

use std::io::{self, IsTerminal, Write};

use comfy_table::{Attribute, Cell, CellAlignment, Table, presets};
use serde::Serialize;

use super::Failure;

/// How data is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// A table for people.
    #[default]
    Table,
    /// JSON for programs.
    Json,
}

/// Where a command writes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Output {
    /// The format of data.
    pub format: Format,
    /// Only data and errors, no words.
    pub quiet: bool,
    /// Colours on stdout.
    pub colour: bool,
    /// Colours on stderr.
    pub colour_words: bool,
}

impl Output {
    /// Colours where a terminal is, and `NO_COLOR` is not.
    pub fn new(format: Format, quiet: bool) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        Self {
            format,
            quiet,
            colour: wanted && io::stdout().is_terminal(),
            colour_words: wanted && io::stderr().is_terminal(),
        }
    }

    /// Whether programs read this.
    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Writes an answer: as JSON, or as `table` shows it to people.
    pub fn answer<T: Serialize>(&self, value: &T, table: impl FnOnce(&T) -> String) -> Result<(), Failure> {
        if self.is_json() {
            let text = serde_json::to_string_pretty(value)
                .map_err(|e| Failure::failed(format!("cannot write JSON: {e}")))?;
            return self.line(&text);
        }
        self.line(table(value).trim_end_matches('\n'))
    }

    /// Writes one of many values: a line of JSON.
    pub fn json_line(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text =
            serde_json::to_string(value).map_err(|e| Failure::failed(format!("cannot write JSON: {e}")))?;
        self.line(&text)
    }

    /// Writes a line of data, at once.
    pub fn line(&self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Writes data, at once.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).map_err(|e| Failure::writing(&e))
    }

    /// Prints a note for people on stderr. A closed stderr is no error.
    pub fn note(&self, words: &str) {
        if !self.quiet {
            let _ = writeln!(io::stderr(), "{words}");
        }
    }

    /// Prints an error on stderr, also when quiet.
    pub fn complain(&self, words: &str) {
        let error = self.tint_words(Tint::Red, "error:");
        let _ = writeln!(io::stderr(), "{error} {words}");
    }

    /// Text for stdout, in colour where that is wanted.
    pub fn tint(&self, tint: Tint, text: &str) -> String {
        tint.paint(self.colour, text)
    }

    /// Text for stderr, in colour where that is wanted.
    pub fn tint_words(&self, tint: Tint, text: &str) -> String {
        tint.paint(self.colour_words, text)
    }

    /// A table with these headings. Those that begin with `>` stand over numbers.
    pub fn table(&self, headings: &[&str]) -> Rows {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        if !self.colour {
            table.force_no_tty();
        }
        table.set_header(
            headings
                .iter()
                .map(|heading| Cell::new(heading.trim_start_matches('>')).add_attribute(Attribute::Bold)),
        );
        for (column, heading) in table.column_iter_mut().zip(headings) {
            column.set_padding((0, 2));
            if heading.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Rows { table }
    }
}

/// A foreign text cut to the width of a table cell.
pub(crate) fn short(text: &str) -> String {
    const MOST: usize = 80;
    let text = harmless(text);
    match text.char_indices().nth(MOST) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Text that is not ours, without what would steer a terminal: escapes are shown, not obeyed.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, char| {
        match char {
            '\n' | '\t' => out.push(char),
            control if control.is_control() => out.extend(control.escape_default()),
            other => out.push(other),
        }
        out
    })
}

/// A table that grows.
pub struct Rows {
    table: Table,
}

impl Rows {
    /// Adds a row.
    pub fn row<C: Into<String>>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Self {
        self.table.add_row(cells.into_iter().map(|cell| Cell::new(Into::<String>::into(cell))));
        self
    }

    /// The text, without spaces at the ends of lines.
    pub fn text(&self) -> String {
        self.table.to_string().lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}

/// The few colours used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tint {
    /// Went well.
    Green,
    /// Went wrong.
    Red,
    /// Worth a look.
    Yellow,
    /// A name.
    Cyan,
    /// Beside the point.
    Dim,
    /// The point.
    Bold,
}

impl Tint {
    fn paint(self, wanted: bool, text: &str) -> String {
        let code = match self {
            Self::Green => 32,
            Self::Red => 31,
            Self::Yellow => 33,
            Self::Cyan => 36,
            Self::Dim => 2,
            Self::Bold => 1,
        };
        if wanted { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_plain_and_its_numbers_stand_right() {
        let out = Output::default();
        let mut rows = out.table(&["NAME", ">COUNT"]);
        rows.row(["a", "5"]).row(["longer", "12345"]);
        assert_eq!(rows.text(), "NAME    COUNT\na           5\nlonger  12345\n");
    }

    #[test]
    fn what_would_steer_the_terminal_is_shown_and_not_obeyed() {
        assert_eq!(harmless("a\x1b[31m\r\u{9b}1m\n\t题"), "a\\u{1b}[31m\\r\\u{9b}1m\n\t题");
    }

    #[test]
    fn long_words_are_cut_and_say_so() {
        assert_eq!(short("题"), "题");
        assert_eq!(short(&"题".repeat(81)), format!("{}…", "题".repeat(80)));
    }

    #[test]
    fn no_colour_is_the_text_itself() {
        assert_eq!(Output::default().tint(Tint::Red, "dead"), "dead");
        let colourful = Output { colour: true, ..Output::default() };
        assert_eq!(colourful.tint(Tint::Red, "dead"), "\x1b[31mdead\x1b[0m");
    }
}
