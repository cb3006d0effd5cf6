//! Real Redis servers.
//!
//! ```no_run
//! use testkit::servers::redis::{self, Redis};
//!
//! if !redis::installed() {
//!     return; // has said so
//! }
//! let redis = Redis::single();
//! redis.restart(); // kill -9; same port, same data
//! ```

mod cluster;
mod sentinels;

use std::{
    fs,
    path::Path,
    sync::{Mutex, OnceLock},
    time::Duration,
};

use super::{
    port_lease::{PortLease, SECOND},
    process::Process,
    wait_until,
};

pub use cluster::{Cluster, SLOTS};
pub use sentinels::{MASTER, Sentinels};

/// A server answers within this, or the test fails.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// Whether Redis is installed; if not, says that its tests are skipped, or fails with `CI=true`.
pub fn installed() -> bool {
    super::installed("redis", &["redis-server", "redis-cli", "redis-sentinel"])
}

/// A server that lives as long as this process, for tests that keep to random names of their own. Nobody stops it,
/// configures it or flushes it.
pub fn shared() -> &'static Redis {
    static SHARED: OnceLock<Redis> = OnceLock::new();
    SHARED.get_or_init(Redis::single)
}

/// How a server is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether every change is written to the append-only file, synced each second.
    pub aof: bool,
    /// Most bytes of memory, if there is a limit.
    pub maxmemory: Option<u64>,
    /// What happens at the limit: `noeviction`, `allkeys-lru` and so on.
    pub policy: &'static str,
    /// The password that clients must give, if any.
    pub password: Option<String>,
    /// More words for the command line, such as `--databases` and `1`.
    pub more: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { aof: true, maxmemory: None, policy: "noeviction", password: None, more: Vec::new() }
    }
}

impl Options {
    fn words(&self, port_lease: &PortLease) -> Vec<String> {
        let yes = |is: bool| if is { "yes" } else { "no" };
        let (port, folder) = (port_lease.port().to_string(), port_lease.folder().display().to_string());
        let log = format!("{folder}/log");
        let mut words: Vec<String> =
            ["--port", &port, "--bind", "127.0.0.1", "--dir", &folder, "--logfile", &log]
                .into_iter()
                .chain(["--appendonly", yes(self.aof), "--appendfsync", "everysec", "--save", ""])
                .chain(["--maxmemory-policy", self.policy, "--repl-diskless-sync-delay", "0"])
                .map(str::to_owned)
                .collect();
        if let Some(bytes) = self.maxmemory {
            words.extend(["--maxmemory".into(), bytes.to_string()]);
        }
        if let Some(password) = &self.password {
            words.extend(["--requirepass".into(), password.clone()]);
        }
        words.extend(self.more.iter().cloned());
        words
    }
}

/// One Redis server. The port and the data stay over restarts.
#[derive(Debug)]
pub struct Redis {
    // Declared before the place: the process is gone before its folder is.
    process: Mutex<Option<Process>>,
    options: Options,
    port_lease: PortLease,
}

impl Redis {
    /// A server on its own, with its append-only file on.
    pub fn single() -> Self {
        Self::with(Options::default())
    }

    /// A server with these options.
    ///
    /// # Panics
    /// If Redis is not installed or does not start.
    pub fn with(options: Options) -> Self {
        // Somebody who knows nothing of our locks may take a port that was free a moment ago.
        for _ in 0..5 {
            let redis =
                Self { process: Mutex::default(), options: options.clone(), port_lease: PortLease::new() };
            if redis.try_start() {
                return redis;
            }
            if !redis.log().contains("Address already in use") {
                panic!("redis-server did not start:\n{}", redis.log());
            }
        }
        panic!("redis-server found no free port");
    }

    /// Where clients go, with the password if there is one.
    pub fn url(&self) -> String {
        match &self.options.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}", self.port()),
            None => format!("redis://127.0.0.1:{}", self.port()),
        }
    }

    /// The port, which stays the same.
    pub fn port(&self) -> u16 {
        self.port_lease.port()
    }

    /// A second port that nobody else has, for what a test adds, such as TLS. A cluster uses it itself.
    pub fn second_port(&self) -> u16 {
        self.port() + SECOND
    }

    /// Where the server keeps its data and its log.
    pub fn folder(&self) -> &Path {
        self.port_lease.folder()
    }

    /// What the server wrote to its log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    /// The number of the process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.lock().unwrap().as_ref().map(Process::pid)
    }

    /// A connection for the test itself; it blocks.
    ///
    /// # Panics
    /// If the server is not there.
    pub fn connection(&self) -> redis::Connection {
        self.try_connection().unwrap()
    }

    /// Runs one command of the test itself, such as `["CONFIG", "SET", "maxmemory", "1mb"]`.
    ///
    /// # Panics
    /// If the server is not there or refuses it.
    pub fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        redis::Cmd::new().arg(words).query(&mut self.connection()).unwrap()
    }

    /// kill -9.
    pub fn kill(&self) {
        *self.process.lock().unwrap() = None;
    }

    /// Starts it again, after a kill.
    pub fn start(&self) {
        assert!(self.try_start(), "redis-server did not start again:\n{}", self.log());
    }

    /// kill -9 and start again.
    pub fn restart(&self) {
        self.kill();
        self.start();
    }

    /// SIGSTOP: the server does nothing, and its connections stay.
    pub fn pause(&self) {
        if let Some(process) = &*self.process.lock().unwrap() {
            process.pause();
        }
    }

    /// SIGCONT: the server goes on.
    pub fn cont(&self) {
        if let Some(process) = &*self.process.lock().unwrap() {
            process.cont();
        }
    }

    fn try_start(&self) -> bool {
        let mut slot = self.process.lock().unwrap();
        let process = slot.insert(Process::start("redis-server", &self.options.words(&self.port_lease)));
        let mut alive = true;
        wait_until("redis-server answers", READY_WITHIN, || {
            alive = process.is_alive();
            !alive || self.is_ready()
        });
        alive
    }

    /// Whether it answers, and is done with reading its data.
    fn is_ready(&self) -> bool {
        let Ok(mut connection) = self.try_connection() else { return false };
        redis::cmd("PING").query::<String>(&mut connection).is_ok()
    }

    fn try_connection(&self) -> redis::RedisResult<redis::Connection> {
        redis::Client::open(self.url())?.get_connection_with_timeout(READY_WITHIN)
    }
}

#[cfg(test)]
mod tests;
