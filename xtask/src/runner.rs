//! Runs test programs side by side, and in CI the few tests that failed once more by themselves.
//!
//! Most tests wait: for a server to start, a lease to end, a message to come due. One program at a time leaves the processors idle.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Mutex, PoisonError,
        mpsc::{self, Sender},
    },
    thread,
    time::Duration,
};

use crate::{
    programs::Program,
    report::failed_tests,
    scratch::Scratch,
    step::{Failure, Steps, clock, in_ci, seconds},
};

/// Programs that run at the same time: each keeps less than half of a processor busy.
const AT_ONCE: usize = 3;
/// Threads of each program. With more of both, two processors cannot start the servers of that many tests in time.
const THREADS: usize = 2;
/// Threads of programs that keep less than a third of a processor busy: their tests share servers, and wait for them or for leases and
/// timers.
const WAITING: [(&str, usize); 6] = [
    ("cli cli", 3),
    ("streams redis", 4),
    ("sinks conformance", 3),
    ("sinks kafka", 3),
    ("sinks redis_streams", 3),
    ("stores conformance", 3),
];
/// With more failures than this, it is not a busy machine.
const RERUNS_MAX: usize = 3;
/// A program that takes longer hangs: it is killed, and what it wrote until then is shown.
const LIMIT: Duration = Duration::from_secs(20 * 60);
/// How often the end of a program is looked for.
const POLL: Duration = Duration::from_millis(50);

/// Programs that take longest, longest first: they start first, so that none of them runs alone at the end. The others take less
/// than 25 s.
const LONGEST: [&str; 19] = [
    "cli cli",
    "cli chaos",
    "sinks conformance",
    "sinks rocketmq",
    "stores sql_server",
    "stores conformance",
    "server http",
    "streams redis",
    "sinks kafka",
    "sinks rabbitmq",
    "server console",
    "testkit lib",
    "sinks redis_streams",
    "stores redis_server",
    "sinks nats",
    "cli configuration",
    "xtask tidy",
    "sinks unresponsive",
    "cli readme",
];

/// Runs all of `programs`. With `CI=true`, up to [`RERUNS_MAX`] tests that failed run once more alone; one that passes then is
/// reported as `SHAKY`.
pub(crate) fn run(steps: &Steps, mut programs: Vec<Program>) -> Result<(), Failure> {
    programs.sort_by_key(|program| {
        LONGEST.iter().position(|name| *name == program.name).unwrap_or(LONGEST.len())
    });
    let scratch = Scratch::new().map_err(|source| Failure::Run { name: "tests".into(), source })?;
    let failed = steps.measure("tests", || side_by_side(programs, scratch.folder(), Run::show))?;
    if failed.is_empty() {
        return Ok(());
    }
    let tests: usize = failed.iter().map(|run| run.failed.len()).sum();
    let has_died = failed.iter().any(|run| run.failed.is_empty());
    if !in_ci() || has_died || tests > RERUNS_MAX {
        let programs = failed.iter().map(|run| run.summary()).collect::<Vec<_>>().join("; ");
        return Err(Failure::Tests { programs });
    }
    for run in &failed {
        for test in &run.failed {
            let mut alone = Command::new(&run.program.executable);
            alone.args(["--exact", test, "--test-threads=1"]).current_dir(&run.program.folder);
            alone.env("TMPDIR", scratch.folder());
            steps.run(&format!("{test} of {}, alone", run.program.name), &mut alone)?;
            steps.note(format!("SHAKY {test} of {}: failed beside others, passed alone", run.program.name));
        }
    }
    Ok(())
}

/// A program that ended.
struct Run {
    program: Program,
    status: ExitStatus,
    /// The tests that failed; empty if it died before it could say.
    failed: Vec<String>,
    took: Duration,
    /// Of the processors, with the processes that it started and waited for.
    busy: Duration,
    log: PathBuf,
}

impl Run {
    fn summary(&self) -> String {
        let tests = self.failed.join(", ");
        let what = if tests.is_empty() { "no test named" } else { &tests };
        format!("{} ended with {} ({what})", self.program.name, self.status)
    }

    /// Shows what it wrote, whole, so that programs do not mix their lines.
    fn show(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "\n     Running {}", self.program.name)?;
        io::copy(&mut File::open(&self.log)?, &mut out)?;
        let (took, busy) = (seconds(self.took), seconds(self.busy));
        writeln!(out, "     {} took {took}, {busy} of the processors", self.program.name)?;
        out.flush()
    }
}

/// Runs [`AT_ONCE`] programs at a time with temporary files in `folder`, shows each by `show` when it ended, and gives those that failed.
fn side_by_side(
    programs: Vec<Program>,
    folder: &Path,
    show: impl Fn(&Run) -> io::Result<()>,
) -> io::Result<Vec<Run>> {
    let queue = Mutex::new(VecDeque::from(programs));
    let (ended, runs) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            let (ended, queue) = (ended.clone(), &queue);
            scope.spawn(move || work(queue, folder, &ended));
        }
        drop(ended);
        let mut failed = Vec::new();
        for run in runs {
            let run: Run = run?;
            show(&run)?;
            if !run.status.success() {
                failed.push(run);
            }
        }
        Ok(failed)
    })
}

fn work(queue: &Mutex<VecDeque<Program>>, folder: &Path, ended: &Sender<io::Result<Run>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(program) = next else { return };
        if ended.send(execute(program, folder)).is_err() {
            return;
        }
    }
}

fn threads_of(program: &str) -> usize {
    WAITING.iter().find(|(name, _)| *name == program).map_or(THREADS, |(_, threads)| *threads)
}

fn execute(program: Program, folder: &Path) -> io::Result<Run> {
    let log = log_file(&program.executable);
    let file = File::create(&log)?;
    let began = clock();
    let child = Command::new(&program.executable)
        .arg(format!("--test-threads={}", threads_of(&program.name)))
        .current_dir(&program.folder)
        .env("TMPDIR", folder)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()?;
    let (status, busy) = wait(child, &log)?;
    let failed = failed_tests(&String::from_utf8_lossy(&fs::read(&log)?));
    Ok(Run { program, status, failed, took: clock() - began, busy, log })
}

/// Waits for the end of the program, or ends it at [`LIMIT`]. Gives also how long it kept processors busy.
fn wait(mut child: Child, log: &Path) -> io::Result<(ExitStatus, Duration)> {
    let began = clock();
    let mut busy = Duration::ZERO;
    loop {
        busy = busy_time(child.id()).unwrap_or(busy);
        if let Some(status) = child.try_wait()? {
            return Ok((status, busy));
        }
        if clock() - began > LIMIT {
            let mut log = File::options().append(true).open(log)?;
            writeln!(log, "killed: still running after {}", seconds(LIMIT))?;
            child.kill()?;
            return Ok((child.wait()?, busy));
        }
        thread::park_timeout(POLL);
    }
}

/// The time on processors of a process and of those that it has waited for, where the system tells it by a file.
fn busy_time(process: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name is in parentheses and may hold anything. After it, four of the fields are times, in hundredths of a second.
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
    let hundredths: u64 = fields.map(|field| field.parse::<u64>().unwrap_or(0)).sum();
    Some(Duration::from_millis(hundredths * 10))
}

fn log_file(executable: &Path) -> PathBuf {
    executable.with_extension("log")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::{programs::ProgramKind, step::root};

    /// A program that is a shell script.
    fn script(folder: &Path, name: &str, text: &str) -> Program {
        let executable = folder.join(name);
        fs::write(&executable, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&executable, fs::Permissions::from_mode(0o755)).unwrap();
        Program { name: name.into(), executable, folder: folder.into(), kind: ProgramKind::Test }
    }

    #[test]
    fn every_program_of_the_lists_is_there() {
        for name in LONGEST.iter().chain(WAITING.iter().map(|(name, _)| name)) {
            let (package, target) = name.split_once(' ').unwrap();
            let folder =
                if package == "xtask" { root().join(package) } else { root().join("crates").join(package) };
            let tests = folder.join("tests");
            let files = match target {
                "lib" => vec![folder.join("src/lib.rs")],
                _ => vec![tests.join(format!("{target}.rs")), tests.join(target).join("main.rs")],
            };
            assert!(files.iter().any(|file| file.is_file()), "there is no {name}");
        }
    }

    #[test]
    fn programs_run_side_by_side_and_the_failed_ones_are_given() {
        let folder = std::env::temp_dir().join(format!("xtask-runner-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // Each of the two waits for what the other one does: one after the other they would never end.
        let meet = |own: &str, other: &str| format!("touch {own}; until [ -e {other} ]; do :; done");
        let failing =
            "printf 'failures:\\n    a::b\\n\\ntest result: FAILED. 0 passed; 1 failed\\n'; exit 101";
        let programs = vec![
            script(&folder, "one", &meet("1", "2")),
            script(&folder, "two", &meet("2", "1")),
            script(&folder, "failing", failing),
            script(&folder, "dying", "echo 'test a ... '; kill -9 $$"),
        ];
        let mut failed = side_by_side(programs, &folder, |_| Ok(())).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        failed.sort_by(|a, b| a.program.name.cmp(&b.program.name));
        let reported: Vec<_> =
            failed.iter().map(|run| (run.program.name.as_str(), run.failed.clone())).collect();
        assert_eq!(reported, [("dying", vec![]), ("failing", vec!["a::b".to_owned()])]);
    }
}
