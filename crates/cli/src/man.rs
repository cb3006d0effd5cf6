//! `duly man`: the manual, from the same source as the help.

use std::{fmt::Write, path::PathBuf};

use clap::{Arg, Args, Command, CommandFactory};

use super::{Failure, Output, args::Line};

/// Write the manual
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly man | man -l -
  duly man --dir /usr/local/share/man/man1")]
pub(crate) struct Man {
    /// Write one page per command into this folder
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,

    /// Write all of it as one Markdown page
    #[arg(long, conflicts_with = "dir")]
    markdown: bool,
}

impl Man {
    pub(crate) fn run(self, out: &Output) -> Result<(), Failure> {
        if self.markdown {
            return out.bytes(markdown().as_bytes());
        }
        if let Some(dir) = self.dir {
            return std::fs::create_dir_all(&dir)
                .and_then(|()| clap_mangen::generate_to(Line::command(), &dir))
                .map_err(|e| Failure::failed(format!("cannot write the manual to {}: {e}", dir.display())));
        }
        let mut page = Vec::new();
        clap_mangen::Man::new(Line::command())
            .render(&mut page)
            .map_err(|e| Failure::failed(format!("cannot write the manual: {e}")))?;
        out.bytes(&page)
    }
}

/// `docs/reference/cli.md`: every command with every option.
fn markdown() -> String {
    let mut line = Line::command();
    line.build();
    let mut text = String::from(
        "# Command line\n\nMade by `duly man --markdown`; a test keeps it up to date. Data goes to stdout, words to stderr.\n\n\
         | exit code | means |\n|---|---|\n| 0 | done |\n| 1 | failed |\n| 2 | usage error |\n\
         | 3 | not found |\n| 4 | too late, or in conflict |\n| 5 | no server answers |\n\n\
         `NO_COLOR` and anything but a terminal: no colours.\n\n## Options of every command\n\n",
    );
    options(&mut text, line.get_arguments().filter(|arg| arg.is_global_set()));
    for command in line.get_subcommands().filter(|command| command.get_name() != "help") {
        section(&mut text, command, "duly");
    }
    text
}

fn section(text: &mut String, command: &Command, parent: &str) {
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let _ = write!(text, "\n## `{name}`\n\n{about}.\n\n");
    let own: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_global_set() && !matches!(arg.get_id().as_str(), "help" | "version"))
        .collect();
    options(text, own.into_iter());
    if let Some(help) = command.get_after_help() {
        let _ = write!(text, "\n```text\n{help}\n```\n");
    }
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        section(text, inner, &name);
    }
}

fn options<'a>(text: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    for (at, arg) in arguments.enumerate() {
        if at == 0 {
            text.push_str("| option | does |\n|---|---|\n");
        }
        let values = arg.get_value_names().unwrap_or_default().join(" ");
        let takes = arg.get_action().takes_values();
        let mut names = Vec::new();
        if let Some(short) = arg.get_short() {
            names.push(format!("-{short}"));
        }
        if let Some(long) = arg.get_long() {
            names.push(format!("--{long}"));
        }
        let name = match (names.is_empty(), takes) {
            (true, _) => values.to_string(),
            (false, true) => format!("{} {values}", names.join(", ")),
            (false, false) => names.join(", "),
        };
        let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        if let Some(env) = arg.get_env() {
            let _ = write!(help, " (`{}`)", env.to_string_lossy());
        }
        let possible: Vec<_> =
            arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
        if takes && !possible.is_empty() {
            let _ = write!(help, ": {}", possible.join(", "));
        }
        let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        if takes && !defaults.is_empty() {
            let _ = write!(help, "; `{}` unless told otherwise", defaults.join(" "));
        }
        let _ = writeln!(text, "| `{name}` | {} |", help.replace('|', "\\|"));
    }
}
