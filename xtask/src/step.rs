//! Runs one command after the other, says what and how long, and stops at the first that fails.

use std::{
    cell::Cell,
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// Why the run ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{name}: `{command}` ended with {status}")]
    Step { name: String, command: String, status: ExitStatus },
    #[error("{name}: cannot start `{command}`: {source}")]
    Start { name: String, command: String, source: io::Error },
    #[error("{what} was skipped ({why}), and with CI=true nothing may be")]
    Skipped { what: String, why: String },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// The steps of one run.
pub(crate) struct Steps {
    began: Instant,
    passed: Cell<u32>,
    skipped: Cell<u32>,
}

impl Steps {
    pub(crate) fn begin() -> Self {
        Self { began: clock(), passed: Cell::new(0), skipped: Cell::new(0) }
    }

    /// Runs `command` with the terminal's input and output. Words go to stderr: stdout is the command's data.
    pub(crate) fn run(&self, name: &str, command: &mut Command) -> Result<(), Failure> {
        self.run_with(name, command, Command::status)
    }

    /// The same, run by `how`.
    pub(crate) fn run_with(
        &self,
        name: &str,
        command: &mut Command,
        how: impl FnOnce(&mut Command) -> io::Result<ExitStatus>,
    ) -> Result<(), Failure> {
        let shown = shown(command);
        eprintln!("\n==> {name}: {shown}");
        let began = clock();
        match how(command) {
            Ok(status) if status.success() => {
                eprintln!("    {name} passed in {}", seconds(clock() - began));
                self.passed.set(self.passed.get() + 1);
                Ok(())
            }
            Ok(status) => Err(Failure::Step { name: name.into(), command: shown, status }),
            Err(source) => Err(Failure::Start { name: name.into(), command: shown, source }),
        }
    }

    /// Says that something was not done. In CI that is a failure: a skip that nobody sees is a test that is not there.
    pub(crate) fn skip(&self, what: &str, why: &str) -> Result<(), Failure> {
        eprintln!("\nSKIPPED {what} ({why})");
        self.skipped.set(self.skipped.get() + 1);
        if in_ci() { Err(Failure::Skipped { what: what.into(), why: why.into() }) } else { Ok(()) }
    }

    pub(crate) fn end(&self) {
        let skipped = match self.skipped.get() {
            0 => String::new(),
            n => format!(", {n} skipped"),
        };
        eprintln!("\n{} steps passed{skipped} in {}", self.passed.get(), seconds(clock() - self.began));
    }
}

/// The cargo that started us, at the root of the repository.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    // What cargo told us of ourselves would make build scripts run again that look at it, and all that depends on them.
    let is_ours = |name: &OsString| {
        name.to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
    };
    for (name, _) in env::vars_os().filter(|(name, _)| is_ours(name)) {
        command.env_remove(name);
    }
    command
}

/// A program of the testkit, built for speed.
pub(crate) fn testkit(program: &str) -> Command {
    cargo(&["run", "--release", "--package", "duly-testkit", "--bin", program, "--"])
}

/// Whether `cargo <arguments>` works here; what it prints is not shown.
pub(crate) fn works(arguments: &[&str]) -> bool {
    cargo(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The names of the examples in `folder`, in order; none if it is not there.
pub(crate) fn examples(folder: &Path) -> Result<Vec<String>, Failure> {
    let read = |source| Failure::Read { path: folder.to_owned(), source };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(read(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.map_err(read)?.path();
        let is_example = path.extension().is_some_and(|ext| ext == "rs") || path.join("main.rs").is_file();
        if let Some(name) = path.file_stem().filter(|_| is_example) {
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn shown(command: &Command) -> String {
    let settings = command.get_envs().filter_map(|(key, value)| {
        Some(format!("{}={:?} ", key.to_string_lossy(), value?.to_string_lossy()))
    });
    let words = command.get_args().map(|word| format!(" {}", word.to_string_lossy()));
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
    settings.chain([program.into_owned()]).chain(words).collect()
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

pub(crate) fn in_ci() -> bool {
    env::var_os("CI").is_some_and(|value| value == "true")
}

#[expect(clippy::disallowed_methods, reason = "how long a step of the build took is nobody's due time")]
fn clock() -> Instant {
    Instant::now()
}
