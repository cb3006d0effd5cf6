//! Real NATS servers, with JetStream.

mod cluster;

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, TcpStream},
    ops::Deref,
    path::PathBuf,
    time::Duration,
};

use super::program::Program;

pub use cluster::Cluster;

/// A server answers within this, or the test fails.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// A server that has nothing to say to a question says it within this.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Whether NATS is installed; if not, says that its tests are skipped, or fails with `CI=true`.
pub fn installed() -> bool {
    built().is_some() || super::installed("nats", &["nats-server"])
}

/// The version that `cargo xtask servers` builds where there is Go.
const VERSION: &str = include_str!("../../../nats/version");

/// The server that was built, in the target folder that we were built into. Where it is not, that of the system has to do.
fn built() -> Option<PathBuf> {
    let program = env::current_exe().ok()?;
    let mut folders = program.ancestors().map(|folder| folder.join("servers/nats"));
    // The version is written there last.
    let folder = folders
        .find(|folder| fs::read_to_string(folder.join("version")).is_ok_and(|there| there == VERSION))?;
    Some(folder.join("nats-server"))
}

/// What was built is not optimised: a benchmark takes the server of the system, if there is one.
fn program() -> String {
    const SYSTEM: &str = "nats-server";
    let file = built().filter(|_| cfg!(debug_assertions) || super::find(SYSTEM).is_none());
    file.map_or_else(|| SYSTEM.into(), |file| file.display().to_string())
}

/// One NATS server with JetStream. The port and the data stay over restarts.
#[derive(Debug)]
pub struct Nats {
    program: Program,
}

impl Nats {
    /// A server that lets everybody in, and takes payloads of two MiB.
    pub fn single() -> Self {
        Self::with("")
    }

    /// A server with these lines in its configuration besides, such as `authorization { … }`.
    ///
    /// # Panics
    /// If NATS is not installed or does not start.
    pub fn with(more: &str) -> Self {
        let nats = Self::placed();
        nats.configure(more);
        nats.start();
        nats
    }

    /// A place for a server, which has no configuration yet and does not run.
    fn placed() -> Self {
        Self { program: Program::new(&program()) }
    }

    fn configure(&self, more: &str) {
        let folder = self.folder().display();
        let config = format!(
            "listen: \"127.0.0.1:{}\"\nmax_payload: 2MB\njetstream {{ store_dir: \"{folder}/data\" }}\n{more}\n",
            self.port()
        );
        fs::write(self.folder().join("nats.conf"), config).unwrap();
    }

    /// Where clients go who need not log in.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port())
    }

    /// Starts it again, after a kill.
    pub fn start(&self) {
        self.launch();
        self.wait_until_ready();
    }

    fn launch(&self) {
        let config = self.folder().join("nats.conf").display().to_string();
        self.program.start(&["-c".into(), config]);
    }

    fn wait_until_ready(&self) {
        self.program.wait_until_ready("nats-server", READY_WITHIN, || self.is_ready());
    }

    /// kill -9 and start again.
    pub fn restart(&self) {
        self.kill();
        self.start();
    }

    /// It greets whoever comes, once it has read its data.
    fn is_ready(&self) -> bool {
        self.greeted().is_some()
    }

    fn greeted(&self) -> Option<BufReader<TcpStream>> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).ok()?;
        stream.set_read_timeout(Some(READY_WITHIN)).ok()?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.starts_with("INFO").then_some(reader)
    }

    /// Whether JetStream answers here: in a cluster, whether there is a leader and this server knows it.
    fn has_leader(&self) -> bool {
        let asked = || -> Option<String> {
            let mut reader = self.greeted()?;
            let stream = reader.get_mut();
            stream.set_read_timeout(Some(ANSWER_WITHIN)).ok()?;
            stream.write_all(b"CONNECT {\"verbose\":false}\r\nSUB _INBOX.kit 1\r\n").ok()?;
            stream.write_all(b"PUB $JS.API.INFO _INBOX.kit 0\r\n\r\n").ok()?;
            let is_answer = |line: &String| line.contains("account_info_response");
            reader.lines().map_while(Result::ok).find(is_answer)
        };
        asked().is_some_and(|answer| !answer.contains("\"error\""))
    }
}

/// The program: its port and folder, its log, kill and pause.
impl Deref for Nats {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_comes_back_to_its_port() {
        if !installed() {
            return;
        }
        let nats = Nats::single();
        let port = nats.port();
        nats.restart();
        assert!(nats.is_ready() && nats.port() == port);
        nats.kill();
        assert!(!nats.is_ready());
    }

    #[test]
    fn three_servers_have_a_leader_also_when_one_of_them_is_away() {
        if !installed() {
            return;
        }
        let cluster = Cluster::of_three();
        assert!(cluster.nodes().iter().all(Nats::has_leader));
        cluster.nodes()[cluster.place("n0")].kill();
        cluster.wait_until_led();
        cluster.start();
        assert!(cluster.nodes().iter().all(Nats::has_leader));
    }
}
