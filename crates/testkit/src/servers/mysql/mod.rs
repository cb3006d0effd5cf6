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

use super::{
    database::{Database, Engine},
    empty, find,
    program::Program,
};

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

/// One MariaDB server. The port and the data stay over restarts.
pub type Mysql = Database<Options>;

impl Engine for Options {
    const NAME: &'static str = "MariaDB";
    const PROGRAM: &'static str = "mariadbd";
    const DATABASE: &'static str = "";

    fn prepare() -> Program {
        let path = find(Self::PROGRAM).expect("mariadbd is not installed: cargo xtask servers");
        let program = Program::new(&path.display().to_string());
        empty::copy(empty_name(&path), &program.folder().join("data"), make_empty);
        program
    }

    fn arguments(&self, program: &Program) -> Vec<String> {
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

    fn is_ready(program: &Program) -> bool {
        greets(program.port())
    }

    fn url(port: u16, database: &str) -> String {
        let server = format!("mysql://root@127.0.0.1:{port}");
        if database.is_empty() { server } else { format!("{server}/{database}") }
    }

    fn create_database(name: &str) -> String {
        format!("CREATE DATABASE `{name}`")
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
}

fn log_mb(pool: u32) -> u32 {
    pool * 3 / 4
}

/// MariaDB runs as root only if told so.
fn as_root() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("--user=root")
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
        let output = Command::new(mariadbd).args(["--no-defaults", "--version"]).output().unwrap().stdout;
        let version = output.split(|byte| *byte == b' ').skip_while(|word| *word != b"Ver").nth(1);
        format!(
            "empty-mariadb-{}-{}",
            empty::word(version.unwrap_or(&output)),
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
