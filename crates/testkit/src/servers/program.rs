//! A program of our own as a server: killed, paused and started again as the test says.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpStream},
    path::Path,
    sync::Mutex,
    time::Duration,
};

use super::{port_lease::PortLease, process::Process, user::User, wait_until};

/// A program on a port and in a folder of its own, which stay over restarts.
#[derive(Debug)]
pub struct Program {
    // Declared before the place: the process is gone before its folder is.
    process: Mutex<Option<Process>>,
    program: String,
    user: Option<User>,
    port_lease: PortLease,
}

impl Program {
    /// A port and a folder for `program`, which does not run yet.
    pub fn new(program: &str) -> Self {
        Self::of(program, None)
    }

    /// The same, run by another user, whose the folder is.
    pub(super) fn of(program: &str, user: Option<User>) -> Self {
        let port_lease = PortLease::new();
        if let Some(user) = user {
            user.own(port_lease.folder());
        }
        Self { process: Mutex::default(), program: program.into(), user, port_lease }
    }

    /// The port that is its alone.
    pub fn port(&self) -> u16 {
        self.port_lease.port()
    }

    /// The folder that is its alone.
    pub fn folder(&self) -> &Path {
        self.port_lease.folder()
    }

    /// Starts it with these arguments. What it writes to its standard error is added to its log.
    pub fn start(&self, arguments: &[String]) {
        let log = File::options().create(true).append(true).open(self.folder().join("log")).unwrap();
        *self.process.lock().unwrap() =
            Some(Process::with_output(&self.program, arguments, self.user, log.into()));
    }

    /// Waits until it is ready.
    ///
    /// # Panics
    /// If it ends before, or is not ready in time.
    pub(super) fn wait_until_ready(&self, name: &str, within: Duration, mut is_ready: impl FnMut() -> bool) {
        wait_until(&format!("{name} is ready"), within, || {
            assert!(self.is_alive(), "{name} did not start:\n{}", self.log());
            is_ready()
        });
    }

    /// Whether it accepts connections at its port.
    pub fn is_listening(&self) -> bool {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).is_ok()
    }

    /// What it wrote to its standard error, over all restarts.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    /// Whether it is there, running or paused.
    pub fn is_alive(&self) -> bool {
        self.process.lock().unwrap().as_mut().is_some_and(Process::is_alive)
    }

    /// The number of the process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.lock().unwrap().as_ref().map(Process::pid)
    }

    /// kill -9.
    pub fn kill(&self) {
        *self.process.lock().unwrap() = None;
    }

    /// SIGSTOP: it does nothing, and its connections stay.
    pub fn pause(&self) {
        if let Some(process) = &*self.process.lock().unwrap() {
            process.pause();
        }
    }

    /// SIGCONT: it goes on.
    pub fn cont(&self) {
        if let Some(process) = &*self.process.lock().unwrap() {
            process.cont();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_started_again_and_its_log_stays() {
        let program = Program::new("sh");
        let run = || program.start(&["-c".into(), "echo here >&2; exec sleep 60".into()]);
        let said = |times| {
            wait_until("it has written", Duration::from_secs(20), || program.log().lines().count() == times);
        };
        assert!(!program.is_alive());
        run();
        said(1);
        assert!(program.is_alive());
        program.kill();
        assert!(!program.is_alive());
        run();
        said(2);
    }
}
