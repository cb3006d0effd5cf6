//! `duly completions`: for the shell.

use clap::{Args, CommandFactory};

use super::{Failure, Output, args::Line};

/// Write the completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly completions bash > /etc/bash_completion.d/duly
  duly completions zsh  > \"${fpath[1]}/_duly\"
  duly completions fish > ~/.config/fish/completions/duly.fish")]
pub(crate) struct Completions {
    /// Which shell
    shell: clap_complete::Shell,
}

impl Completions {
    pub(crate) fn run(self, out: &Output) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Line::command(), "duly", &mut script);
        out.bytes(&script)
    }
}
