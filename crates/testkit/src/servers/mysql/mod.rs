//! Real MariaDB servers.
//!
//! ```no_run
//! use testkit::servers::mysql::{self, Mysql};
//!
//! if !mysql::installed() {
//!     return; // has said so
//! }
//! let url = mysql::shared().fresh_database(); // one server for all tests, a database for each
//! let alone = Mysql::single(); // a server of the test's own
//! alone.restart(); // kill -9; same port, same data
//! ```

use std::{fs, io::Read, net::TcpStream, path::Path, process::Command, sync::OnceLock, time::Duration};

use super::{client, empty, find, program::Program, wait_until};

/// A server answers within this, or the test fails. A long recovery after a kill is in it.
const READY_WITHIN: Duration = Duration::from_secs(60);
const PROGRAMS: [&str; 3] = ["mariadbd", "mariadb-install-db", "mariadb"];

/// Whether MariaDB is installed; if not, says that its tests are skipped, or fails with `CI=true`.
pub fn installed() -> bool {
    super::installed("mysql", &PROGRAMS)
}

/// A server that lives as long as this process, for tests that keep to databases of their own. Nobody stops it or
/// changes its settings.
pub fn shared() -> &'static Mysql {
    static SHARED: OnceLock<Mysql> = OnceLock::new();
    SHARED.get_or_init(Mysql::single)
}

/// How a server is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// Megabytes of memory for pages. The redo log has three quarters of that, as is MariaDB's default.
    pub buffer_pool_mb: u32,
    /// More words for the command line, such as `--log-bin`. They win over ours.
    pub more: Vec<String>,
}

impl Default for Options {
    /// Durable: every commit is synced before it is answered.
    fn default() -> Self {
        Self { buffer_pool_mb: 64, more: Vec::new() }
    }
}

impl Options {
    fn words(&self, program: &Program) -> Vec<String> {
        let (pool, folder) = (self.buffer_pool_mb, program.folder().display());
        let mut words = vec![
            // First, or it does not count.
            "--no-defaults".to_owned(),
            "--bind-address=127.0.0.1".into(),
            "--skip-name-resolve".into(),
            "--skip-log-bin".into(),
            "--innodb-flush-log-at-trx-commit=1".into(),
            // As it is with MySQL 8, and with MariaDB as distributions set it up.
            "--character-set-server=utf8mb4".into(),
            "--performance-schema=OFF".into(),
            "--max-connections=500".into(),
            format!("--port={}", program.port()),
            format!("--datadir={folder}/data"),
            format!("--socket={folder}/socket"),
            format!("--pid-file={folder}/pid"),
            format!("--innodb-buffer-pool-size={pool}M"),
            format!("--innodb-log-file-size={}M", log_mb(pool)),
        ];
        words.extend(as_root().map(str::to_owned));
        words.extend(self.more.iter().cloned());
        words
    }
}

fn log_mb(pool: u32) -> u32 {
    pool * 3 / 4
}

/// MariaDB runs as root only if told so.
fn as_root() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
}

/// One MariaDB server. The port and the data stay over restarts.
#[derive(Debug)]
pub struct Mysql {
    program: Program,
    options: Options,
}

impl Mysql {
    /// A server on its own, with durable settings.
    pub fn single() -> Self {
        Self::with(Options::default())
    }

    /// A server with these options.
    ///
    /// # Panics
    /// If MariaDB is not installed or does not start.
    pub fn with(options: Options) -> Self {
        let path = find("mariadbd").expect("mariadbd is not installed: cargo xtask servers");
        // Somebody who knows nothing of our locks may take a port that was free a moment ago.
        for _ in 0..5 {
            let program = Program::new(&path.display().to_string());
            empty::copy(empty_name(&path), &program.folder().join("data"), make_empty);
            let mysql = Self { program, options: options.clone() };
            if mysql.try_start() {
                return mysql;
            }
            if !mysql.log().contains("Address already in use") {
                panic!("mariadbd did not start:\n{}", mysql.log());
            }
        }
        panic!("mariadbd found no free port");
    }

    /// Where clients go that name no database.
    pub fn url(&self) -> String {
        format!("mysql://root@127.0.0.1:{}", self.port())
    }

    /// Creates an empty database and answers where clients find it.
    ///
    /// # Panics
    /// If there is one of that name.
    pub fn database(&self, name: &str) -> String {
        self.run(&format!("CREATE DATABASE `{name}`"));
        format!("{}/{name}", self.url())
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

    /// The number of the process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.program.pid()
    }

    /// Runs statements of the test itself, in no database; it blocks. Answers the rows of all of them, one per line,
    /// with tabs between the columns.
    ///
    /// # Panics
    /// If the server is not there or refuses one.
    pub fn run(&self, statements: &str) -> String {
        self.run_in("", statements)
    }

    /// The same in a database, given by its name or by its URL.
    ///
    /// # Panics
    /// If the server is not there or refuses one.
    pub fn run_in(&self, database: &str, statements: &str) -> String {
        let answer = self.try_run_in(database, statements);
        answer.unwrap_or_else(|error| panic!("MariaDB refused {statements}: {error}"))
    }

    /// The same, and answers what the server said if it refused one; those before it are done.
    pub fn try_run_in(&self, database: &str, statements: &str) -> Result<String, String> {
        ask(self.port(), database, statements)
    }

    /// kill -9.
    pub fn kill(&self) {
        self.program.kill();
    }

    /// Starts it again, after a kill. It has recovered when this returns.
    pub fn start(&self) {
        assert!(self.try_start(), "mariadbd did not start again:\n{}", self.log());
    }

    /// kill -9 and start again.
    pub fn restart(&self) {
        self.kill();
        self.start();
    }

    /// SIGSTOP: the server does nothing, and its connections stay.
    pub fn pause(&self) {
        self.program.pause();
    }

    /// SIGCONT: the server goes on.
    pub fn cont(&self) {
        self.program.cont();
    }

    fn try_start(&self) -> bool {
        self.program.start(&self.options.words(&self.program));
        let mut alive = true;
        wait_until("mariadbd answers", READY_WITHIN, || {
            alive = self.program.is_alive();
            !alive || greets(self.port())
        });
        alive
    }
}

/// Runs statements through this port, which may be a proxy's.
fn ask(port: u16, database: &str, statements: &str) -> Result<String, String> {
    client::ask(&mut client(port, database), statements)
}

fn client(port: u16, database: &str) -> Command {
    let database = database.rsplit('/').next().unwrap_or_default();
    let mut client = Command::new("mariadb");
    client.env_clear().args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--user=root"]);
    // Rows as they come, and no second try behind the test's back.
    client.args([
        "--batch",
        "--skip-column-names",
        "--unbuffered",
        "--skip-reconnect",
        "--connect-timeout=20",
    ]);
    client.args([format!("--port={port}"), format!("--database={database}")]);
    client
}

/// Whether somebody on this port says the first words of MySQL's protocol, which it does once it is ready.
fn greets(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let mut begin = [0; 5];
    stream.read_exact(&mut begin).is_ok() && begin[4] == 10
}

/// A name for data folders that this version made for this user.
fn empty_name(mariadbd: &Path) -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let told = Command::new(mariadbd).args(["--no-defaults", "--version"]).output().unwrap().stdout;
        let version = told.split(|byte| *byte == b' ').skip_while(|word| *word != b"Ver").nth(1);
        format!(
            "empty-mariadb-{}-{}",
            empty::word(version.unwrap_or(&told)),
            rustix::process::geteuid().as_raw()
        )
    })
}

fn make_empty(folder: &Path) {
    let log = log_mb(Options::default().buffer_pool_mb);
    let done = Command::new("mariadb-install-db")
        .args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"])
        .args(as_root())
        .arg(format!("--datadir={}", folder.display()))
        .arg(format!("--innodb-log-file-size={log}M"))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        done.status.success(),
        "mariadb-install-db failed:\n{}{}",
        text(&done.stdout),
        text(&done.stderr)
    );
    // A list of pages to read in at the start; there is nothing worth it.
    let _ = fs::remove_file(folder.join("ib_buffer_pool"));
}

#[cfg(test)]
mod tests;
