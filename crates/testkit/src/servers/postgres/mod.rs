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
};

use super::{
    database::{Database, Engine},
    empty, on_the_path,
    program::Program,
    user::User,
};

pub(super) use family::clean_up;

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

/// One PostgreSQL server. The port and the data stay over restarts.
pub type Postgres = Database<Options>;

impl Engine for Options {
    const NAME: &'static str = "PostgreSQL";
    const PROGRAM: &'static str = "postgres";
    const DATABASE: &'static str = "postgres";

    fn prepare() -> Program {
        // It refuses to run as root.
        let user = User::instead_of_root(&["postgres", "nobody"]);
        let program = Program::of(&path_of(Self::PROGRAM).display().to_string(), user);
        empty::copy(empty_name(), &program.folder().join("data"), |folder| make_empty(folder, user));
        program
    }

    fn arguments(&self, program: &Program) -> Vec<String> {
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

    /// Whether its file says so. A server that was killed leaves such a file, too: with another process number.
    fn is_ready(program: &Program) -> bool {
        let text = fs::read_to_string(program.folder().join("data/postmaster.pid")).unwrap_or_default();
        let first = text.lines().next().and_then(|line| line.parse().ok());
        first == program.pid() && text.lines().last().is_some_and(|line| line.trim() == "ready")
    }

    fn url(port: u16, database: &str) -> String {
        format!("postgres://duly@127.0.0.1:{port}/{database}")
    }

    fn create_database(name: &str) -> String {
        format!("CREATE DATABASE \"{name}\"")
    }

    fn client(port: u16, database: &str) -> Command {
        let database = database.rsplit('/').next().unwrap_or_default();
        let mut psql = Command::new(path_of("psql"));
        psql.env_clear().args([
            "--no-psqlrc",
            "--quiet",
            "--no-align",
            "--tuples-only",
            "--field-separator=\t",
        ]);
        psql.arg("--set=ON_ERROR_STOP=1");
        psql.arg(format!("postgres://duly@127.0.0.1:{port}/{database}?connect_timeout=20"));
        psql
    }

    fn kill(program: &Program) {
        if let Some(pid) = program.pid() {
            family::kill_children(pid);
        }
        program.kill();
    }

    fn pause(program: &Program) {
        if let Some(pid) = program.pid() {
            family::pause(pid);
        }
    }

    fn cont(program: &Program) {
        if let Some(pid) = program.pid() {
            family::cont(pid);
        }
    }

    fn clean_up(folder: &Path) {
        clean_up(folder);
    }
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
        let version = Command::new(path_of("postgres")).arg("--version").output().unwrap();
        format!("empty-{}-{}", empty::word(&version.stdout), rustix::process::geteuid().as_raw())
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
