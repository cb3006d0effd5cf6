//! Real PostgreSQL servers.
//!
//! ```no_run
//! use testkit::servers::postgres::{self, Postgres};
//!
//! if !postgres::installed() {
//!     return; // has said so
//! }
//! let url = postgres::shared().fresh_database(); // one server for all tests, a database for each
//! let alone = Postgres::single(); // a server of the test's own
//! alone.restart(); // kill -9; same port, same data
//! ```

mod family;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use super::{client, empty, on_the_path, program::Program, user::User, wait_until};

pub(super) use family::clean_up;

/// A server answers within this, or the test fails. A long recovery after a kill is in it.
const READY_WITHIN: Duration = Duration::from_secs(60);
const PROGRAMS: [&str; 3] = ["postgres", "initdb", "psql"];

/// Whether PostgreSQL is installed; if not, says that its tests are skipped, or fails with `CI=true`.
pub fn installed() -> bool {
    super::installed("postgres", &PROGRAMS)
}

/// A server that lives as long as this process, for tests that keep to databases of their own. Nobody stops it or
/// changes its settings.
pub fn shared() -> &'static Postgres {
    static SHARED: OnceLock<Postgres> = OnceLock::new();
    SHARED.get_or_init(Postgres::single)
}

/// The folders of programs that Debian does not put on the path, the newest version first.
pub(super) fn folders() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    versions.sort_unstable();
    versions.into_iter().rev().map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin")))
}

/// How a server is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// Megabytes of memory for pages.
    pub shared_buffers_mb: u32,
    /// More settings, such as `synchronous_commit=off`. They win over ours.
    pub more: Vec<String>,
}

impl Default for Options {
    /// Durable: every commit is synced before it is answered.
    fn default() -> Self {
        Self { shared_buffers_mb: 32, more: Vec::new() }
    }
}

impl Options {
    fn words(&self, program: &Program) -> Vec<String> {
        let folder = program.folder().display();
        let settings = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", program.port()),
            format!("unix_socket_directories={folder}"),
            format!("shared_buffers={}MB", self.shared_buffers_mb),
            // In the data folder, which goes with the server.
            "dynamic_shared_memory_type=mmap".into(),
            "max_connections=200".into(),
            "fsync=on".into(),
            "synchronous_commit=on".into(),
        ];
        let settings = settings.iter().chain(&self.more);
        let words = ["-D".to_owned(), format!("{folder}/data")];
        words.into_iter().chain(settings.flat_map(|setting| ["-c".into(), setting.clone()])).collect()
    }
}

/// One PostgreSQL server. The port and the data stay over restarts.
#[derive(Debug)]
pub struct Postgres {
    program: Program,
    options: Options,
}

impl Postgres {
    /// A server on its own, with durable settings.
    pub fn single() -> Self {
        Self::with(Options::default())
    }

    /// A server with these options.
    ///
    /// # Panics
    /// If PostgreSQL is not installed or does not start.
    pub fn with(options: Options) -> Self {
        // It refuses to run as root.
        let user = User::instead_of_root(&["postgres", "nobody"]);
        // Somebody who knows nothing of our locks may take a port that was free a moment ago.
        for _ in 0..5 {
            let program = Program::of(&path_of("postgres").display().to_string(), user);
            empty::copy(empty_name(), &program.folder().join("data"), |folder| make_empty(folder, user));
            let postgres = Self { program, options: options.clone() };
            if postgres.try_start() {
                return postgres;
            }
            if !postgres.log().contains("Address already in use") {
                panic!("postgres did not start:\n{}", postgres.log());
            }
        }
        panic!("postgres found no free port");
    }

    /// Where clients go that need no database of their own.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgres://duly@127.0.0.1:{}/{database}", self.port())
    }

    /// Creates an empty database and answers where clients find it.
    ///
    /// # Panics
    /// If there is one of that name.
    pub fn database(&self, name: &str) -> String {
        self.run(&format!("CREATE DATABASE \"{name}\""));
        self.url_of(name)
    }

    /// Creates an empty database that is the caller's alone and answers where clients find it.
    pub fn fresh_database(&self) -> String {
        self.database(&client::fresh_name())
    }

    /// The port, which stays the same.
    pub fn port(&self) -> u16 {
        self.program.port()
    }

    /// Where the server keeps its data and its log.
    pub fn folder(&self) -> &Path {
        self.program.folder()
    }

    /// What the server wrote to its log, over all restarts.
    pub fn log(&self) -> String {
        self.program.log()
    }

    /// The number of the first process, the parent of the others, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.program.pid()
    }

    /// Runs statements of the test itself; it blocks. Answers the rows of all of them, one per line, with tabs between the
    /// columns.
    ///
    /// # Panics
    /// If the server is not there or refuses one.
    pub fn run(&self, statements: &str) -> String {
        self.run_in("postgres", statements)
    }

    /// The same in a database, given by its name or by its URL.
    ///
    /// # Panics
    /// If the server is not there or refuses one.
    pub fn run_in(&self, database: &str, statements: &str) -> String {
        let answer = self.try_run_in(database, statements);
        answer.unwrap_or_else(|error| panic!("PostgreSQL refused {statements}: {error}"))
    }

    /// The same, and answers what the server said if it refused one; those before it are done.
    pub fn try_run_in(&self, database: &str, statements: &str) -> Result<String, String> {
        ask(self.port(), database, statements)
    }

    /// kill -9 of all its processes.
    pub fn kill(&self) {
        if let Some(pid) = self.pid() {
            family::kill_children(pid);
        }
        self.program.kill();
    }

    /// Starts it again, after a kill. It has recovered when this returns.
    pub fn start(&self) {
        assert!(self.try_start(), "postgres did not start again:\n{}", self.log());
    }

    /// kill -9 and start again.
    pub fn restart(&self) {
        self.kill();
        self.start();
    }

    /// SIGSTOP to all its processes: the server does nothing, and its connections stay.
    pub fn pause(&self) {
        if let Some(pid) = self.pid() {
            family::pause(pid);
        }
    }

    /// SIGCONT to all its processes: the server goes on.
    pub fn cont(&self) {
        if let Some(pid) = self.pid() {
            family::cont(pid);
        }
    }

    fn try_start(&self) -> bool {
        self.program.start(&self.options.words(&self.program));
        let mut alive = true;
        wait_until("postgres answers", READY_WITHIN, || {
            alive = self.program.is_alive();
            !alive || self.is_ready()
        });
        alive
    }

    /// Whether it has written so; what stands there may also be from one that was killed.
    fn is_ready(&self) -> bool {
        let told = fs::read_to_string(self.folder().join("data/postmaster.pid")).unwrap_or_default();
        let first = told.lines().next().and_then(|line| line.parse().ok());
        first == self.pid() && told.lines().last().is_some_and(|line| line.trim() == "ready")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.kill();
        clean_up(self.folder());
    }
}

/// Runs statements through this port, which may be a proxy's.
fn ask(port: u16, database: &str, statements: &str) -> Result<String, String> {
    client::ask(&mut psql(port, database), statements)
}

fn psql(port: u16, database: &str) -> Command {
    let database = database.rsplit('/').next().unwrap_or_default();
    let mut psql = Command::new(path_of("psql"));
    psql.env_clear().args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--field-separator=\t"]);
    psql.arg("--set=ON_ERROR_STOP=1");
    psql.arg(format!("postgres://duly@127.0.0.1:{port}/{database}?connect_timeout=20"));
    psql
}

/// One of the programs, all from one folder: alone on the path may be a wrapper that wants to know better.
fn path_of(program: &str) -> PathBuf {
    let has_all = |folder: &PathBuf| PROGRAMS.iter().all(|program| folder.join(program).is_file());
    let folder = folders().chain(on_the_path()).find(has_all);
    folder.expect("PostgreSQL is not installed: cargo xtask servers").join(program)
}

/// A name for data folders that this version made for this user.
fn empty_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let told = Command::new(path_of("postgres")).arg("--version").output().unwrap();
        format!("empty-{}-{}", empty::word(&told.stdout), rustix::process::geteuid().as_raw())
    })
}

fn make_empty(folder: &Path, user: Option<User>) {
    let mut initdb = Command::new(path_of("initdb"));
    initdb.args(["--no-sync", "--auth=trust", "--username=duly", "--encoding=UTF8", "--locale=C"]);
    initdb.arg("--pgdata").arg(folder);
    // Ours may be one that the other user cannot enter.
    initdb.current_dir("/");
    if let Some(user) = user {
        user.own(folder);
        user.run(&mut initdb);
    }
    let done = initdb.output().unwrap();
    assert!(done.status.success(), "initdb failed:\n{}", String::from_utf8_lossy(&done.stderr));
}

#[cfg(test)]
mod tests;
