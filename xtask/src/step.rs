//! Runs one command after the other, says what and how long, and stops at the first that fails.

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

/// Why the run ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{name}: `{command}` ended with {status}")]
    Step { name: String, command: String, status: ExitStatus },
    #[error("{name}: cannot start `{command}`: {source}")]
    Start { name: String, command: String, source: io::Error },
    #[error("tests failed: {programs}")]
    Tests { programs: String },
    #[error("{name}: {source}")]
    Run { name: String, source: io::Error },
    #[error("{what} was skipped ({why}), and with CI=true nothing may be")]
    Skipped { what: String, why: String },
    #[error("outdated: {files:?}; run `cargo xtask api` and look at what changes")]
    Outdated { files: Vec<String> },
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// The steps of one run. Some run beside others.
pub(crate) struct Steps {
    began: Instant,
    passed: Mutex<Vec<(String, Duration)>>,
    skipped: AtomicU32,
    /// Lines for the end, where they are seen.
    notes: Mutex<Vec<String>>,
}

impl Steps {
    pub(crate) fn begin() -> Self {
        Self { began: clock(), passed: Mutex::default(), skipped: AtomicU32::new(0), notes: Mutex::default() }
    }

    /// Runs `command` with the terminal's input and output. Words go to stderr: stdout is the command's data.
    pub(crate) fn run(&self, name: &str, command: &mut Command) -> Result<(), Failure> {
        self.run_with(name, command, Command::status)
    }

    /// The same beside other steps: what it writes is shown in one piece when it ended.
    pub(crate) fn run_aside(&self, name: &str, command: &mut Command) -> Result<(), Failure> {
        self.run_with(name, command, |command| {
            let output = command.output()?;
            let mut out = io::stderr().lock();
            out.write_all(&output.stdout)?;
            out.write_all(&output.stderr)?;
            Ok(output.status)
        })
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
                self.record(name, clock() - began);
                Ok(())
            }
            Ok(status) => Err(Failure::Step { name: name.into(), command: shown, status }),
            Err(source) => Err(Failure::Start { name: name.into(), command: shown, source }),
        }
    }

    /// A step that is not one command: `work` does it.
    pub(crate) fn measure<T>(&self, name: &str, work: impl FnOnce() -> io::Result<T>) -> Result<T, Failure> {
        eprintln!("\n==> {name}");
        let began = clock();
        let done = work().map_err(|source| Failure::Run { name: name.into(), source })?;
        self.record(name, clock() - began);
        Ok(done)
    }

    /// A step that is not one command and says itself why it fails.
    pub(crate) fn check(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        eprintln!("\n==> {name}");
        let began = clock();
        work()?;
        self.record(name, clock() - began);
        Ok(())
    }

    /// Says `line` now and once more at the end.
    pub(crate) fn note(&self, line: String) {
        eprintln!("\n{line}");
        locked(&self.notes).push(line);
    }

    fn record(&self, name: &str, took: Duration) {
        eprintln!("    {name} ended after {}", seconds(took));
        locked(&self.passed).push((name.into(), took));
    }

    /// Says that something was not done. In CI that is a failure: a skip that nobody sees is a test that is not there.
    pub(crate) fn skip(&self, what: &str, why: &str) -> Result<(), Failure> {
        eprintln!("\nSKIPPED {what} ({why})");
        self.skipped.fetch_add(1, Ordering::Relaxed);
        if in_ci() { Err(Failure::Skipped { what: what.into(), why: why.into() }) } else { Ok(()) }
    }

    pub(crate) fn end(&self) {
        let skipped = match self.skipped.load(Ordering::Relaxed) {
            0 => String::new(),
            n => format!(", {n} skipped"),
        };
        eprintln!();
        for (name, took) in locked(&self.passed).iter() {
            eprintln!("{:>9}  {name}", seconds(*took));
        }
        for line in locked(&self.notes).iter() {
            eprintln!("{line}");
        }
        let steps = locked(&self.passed).len();
        eprintln!("\n{steps} steps passed{skipped} in {}", seconds(clock() - self.began));
    }
}

fn locked<T>(lines: &Mutex<Vec<T>>) -> MutexGuard<'_, Vec<T>> {
    lines.lock().unwrap_or_else(PoisonError::into_inner)
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

/// From now on, this thread and what it starts get the processors that nobody else wants.
pub(crate) fn yield_to_others() {
    // Elsewhere it would be the whole process, and with it those to whom it yields.
    if cfg!(target_os = "linux") {
        // With another system's rules for it, it is only slower for the others.
        let _ = rustix::process::nice(19);
    }
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

/// The folder that cargo builds into, with the profile that we were built into.
pub(crate) fn target() -> Option<PathBuf> {
    Some(env::current_exe().ok()?.ancestors().nth(2)?.to_owned())
}

fn shown(command: &Command) -> String {
    let settings = command.get_envs().filter_map(|(key, value)| {
        Some(format!("{}={:?} ", key.to_string_lossy(), value?.to_string_lossy()))
    });
    let words = command.get_args().map(|word| format!(" {}", word.to_string_lossy()));
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
    settings.chain([program.into_owned()]).chain(words).collect()
}

pub(crate) fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

pub(crate) fn in_ci() -> bool {
    env::var_os("CI").is_some_and(|value| value == "true")
}

#[expect(clippy::disallowed_methods, reason = "how long a step of the build took is nobody's due time")]
pub(crate) fn clock() -> Instant {
    Instant::now()
}
