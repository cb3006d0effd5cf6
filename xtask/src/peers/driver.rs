//! The drivers: built and installed into the target folder, and run, a process for each phase.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde_json::Value;

use super::{
    instance::Instance,
    phase::Phase,
    system::{Driver, System},
};
use crate::step::{Failure, Steps, root, target};

/// Where their sources are.
const SOURCES: &str = "bench/peers";
/// No driver needs longer to its next line; then it is stuck.
const LINE_WITHIN: Duration = Duration::from_secs(300);

pub(super) struct Drivers {
    folder: PathBuf,
}

impl Drivers {
    /// Builds and installs what these systems need.
    pub(super) fn install(steps: &Steps, systems: &[&System]) -> Result<Self, Failure> {
        let Some(target) = target() else {
            let source = io::Error::other("this program is in no target folder");
            return Err(Failure::Run { name: "drivers".into(), source });
        };
        let drivers = Self { folder: target.join("peers") };
        fs::create_dir_all(&drivers.folder)
            .map_err(|source| Failure::Write { path: drivers.folder.clone(), source })?;
        if systems.iter().any(|system| matches!(system.driver, Driver::Go(_))) {
            drivers.build_go(steps)?;
        }
        if systems.iter().any(|system| matches!(system.driver, Driver::Node(_))) {
            drivers.install_node(steps)?;
        }
        Ok(drivers)
    }

    fn go(&self) -> PathBuf {
        self.folder.join("driver")
    }

    fn node(&self) -> PathBuf {
        self.folder.join("node")
    }

    /// With the versions and checksums of go.sum.
    fn build_go(&self, steps: &Steps) -> Result<(), Failure> {
        let mut go = Command::new("go");
        go.args(["build", "-mod=readonly", "-modcacherw", "-o"]).arg(self.go()).arg(".");
        go.current_dir(root().join(SOURCES).join("go")).env("GOMODCACHE", self.folder.join("go"));
        steps.run("driver in Go", &mut go)
    }

    /// With the versions and checksums of package-lock.json, once for each of them. Nothing of what is installed is run on the way.
    fn install_node(&self, steps: &Steps) -> Result<(), Failure> {
        let sources = root().join(SOURCES).join("node");
        let lock = |folder: &Path| folder.join("package-lock.json");
        let wanted =
            fs::read(lock(&sources)).map_err(|source| Failure::Read { path: lock(&sources), source })?;
        // Written last, so that a folder with it is whole.
        let mark = self.node().join("installed.json");
        let is_there = fs::read(&mark).is_ok_and(|there| there == wanted);
        copy(&sources, &self.node()).map_err(|source| Failure::Write { path: self.node(), source })?;
        if is_there {
            return Ok(());
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]);
        steps.run("packages of the driver in Node", npm.current_dir(self.node()))?;
        fs::write(&mark, wanted).map_err(|source| Failure::Write { path: mark, source })
    }

    /// Runs one phase, and returns the line in which the driver says what came of it. The servers are killed and started again where
    /// it asks for that.
    pub(super) fn run(
        &self,
        system: &System,
        phase: Phase,
        numbers: &[String],
        instance: &mut Instance,
    ) -> io::Result<Value> {
        let (mut command, name) = match system.driver {
            Driver::Go(name) => (Command::new(self.go()), name),
            Driver::Node(name) => {
                let mut node = Command::new("node");
                node.arg(self.node().join("main.mjs"));
                (node, name)
            }
        };
        command.args(["--system", name, "--phase", phase.word(), "--url", &instance.address()]).args(numbers);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Conversation::begin(&mut command)?.until_the_end(instance)
    }
}

/// A driver that runs, killed if it is still there when this is dropped.
struct Conversation {
    child: Child,
    orders: ChildStdin,
    lines: mpsc::Receiver<String>,
}

impl Conversation {
    fn begin(command: &mut Command) -> io::Result<Self> {
        let mut child = command.spawn()?;
        let (Some(orders), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a driver without input and output"));
        };
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok(Self { child, orders, lines })
    }

    fn until_the_end(mut self, instance: &mut Instance) -> io::Result<Value> {
        loop {
            let line = self.lines.recv_timeout(LINE_WITHIN).map_err(|why| {
                io::Error::other(match why {
                    mpsc::RecvTimeoutError::Timeout => "the driver is stuck",
                    mpsc::RecvTimeoutError::Disconnected => "the driver failed",
                })
            })?;
            let said: Value = serde_json::from_str(&line)?;
            match said["event"].as_str() {
                Some("kill") => {
                    instance.kill();
                    writeln!(self.orders, "killed")?;
                }
                Some("counted") => {
                    instance.restart()?;
                    writeln!(self.orders, "restarted")?;
                }
                Some(other) => return Err(io::Error::other(format!("a driver's unknown event {other}"))),
                None => return Ok(said),
            }
        }
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copies the files of a folder that has no folders.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
