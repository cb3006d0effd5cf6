//! Real NATS servers, with JetStream.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    time::Duration,
};

use super::{program::Program, wait_until};

/// A server answers within this, or the test fails.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Whether NATS is installed; if not, says that its tests are skipped, or fails with `CI=true`.
pub fn installed() -> bool {
    super::installed("nats", &["nats-server"])
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
        let nats = Self { program: Program::new("nats-server") };
        let folder = nats.program.folder().display();
        let config = format!(
            "listen: \"127.0.0.1:{}\"\nmax_payload: 2MB\njetstream {{ store_dir: \"{folder}/data\" }}\n{more}\n",
            nats.port()
        );
        fs::write(nats.program.folder().join("nats.conf"), config).unwrap();
        nats.start();
        nats
    }

    /// Where clients go who need not log in.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port())
    }

    /// The port, which stays the same.
    pub fn port(&self) -> u16 {
        self.program.port()
    }

    /// Where the server keeps its data, its configuration and its log.
    pub fn folder(&self) -> &Path {
        self.program.folder()
    }

    /// kill -9.
    pub fn kill(&self) {
        self.program.kill();
    }

    /// Starts it again, after a kill.
    pub fn start(&self) {
        let config = self.folder().join("nats.conf").display().to_string();
        self.program.start(&["-c".into(), config]);
        wait_until("nats-server answers", READY_WITHIN, || {
            assert!(self.program.is_alive(), "nats-server did not start:\n{}", self.program.log());
            self.is_ready()
        });
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

    /// It greets whoever comes, once it has read its data.
    fn is_ready(&self) -> bool {
        let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())) else { return false };
        let mut line = String::new();
        let _ = stream.set_read_timeout(Some(READY_WITHIN));
        BufReader::new(stream).read_line(&mut line).is_ok_and(|count| count > 0) && line.starts_with("INFO")
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
}
