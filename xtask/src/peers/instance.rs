//! The servers of one system, from their start in empty folders to their end.

use std::{
    fs::File,
    io,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use super::{process_tree, sandbox::Sandbox, servers::Server, system::System};
use crate::{servers::find, step::clock};

/// RabbitMQ starts slowly on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct Instance(Vec<RunningServer>);

struct RunningServer {
    // Declared before the sandbox: the process is gone before its folder is.
    process: Option<Process>,
    server: &'static dyn Server,
    sandbox: Sandbox,
}

impl Instance {
    /// Returns when all servers take calls.
    pub(super) fn start(system: &'static System, duly: &Path) -> io::Result<Self> {
        let mut instance = Self(Vec::new());
        for server in system.servers {
            let behind = instance.0.last().map_or(0, |part| part.sandbox.port);
            let sandbox = Sandbox::new(behind, duly)?;
            server.prepare(&sandbox)?;
            instance.0.push(RunningServer { process: None, server: *server, sandbox });
            instance.0.last_mut().map_or(Ok(()), RunningServer::start)?;
        }
        Ok(instance)
    }

    /// kill -9 of all processes of all servers. The last one first: it may ask those before it.
    pub(super) fn kill(&mut self) {
        self.0.iter_mut().rev().for_each(|part| part.process = None);
    }

    /// Starts them all again, after a kill.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.0.iter_mut().try_for_each(RunningServer::start)
    }

    /// Where the driver finds it.
    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.0.last().map_or(0, |part| part.sandbox.port))
    }

    fn pids(&self) -> impl Iterator<Item = u32> {
        self.0.iter().filter_map(|part| Some(part.process.as_ref()?.0.id()))
    }

    pub(super) fn processor_s(&self) -> f64 {
        self.pids().map(process_tree::processor_s).sum()
    }

    /// Bytes that grow with what waits.
    pub(super) fn space(&self) -> io::Result<u64> {
        self.on_disk().unwrap_or_else(|| Ok(self.pids().map(process_tree::resident_bytes).sum()))
    }

    /// What [`space`](Self::space) counts.
    pub(super) fn space_is(&self) -> &'static str {
        if self.on_disk().is_some() { "database" } else { "memory" }
    }

    fn on_disk(&self) -> Option<io::Result<u64>> {
        self.0.iter().find_map(|part| part.server.disk_bytes(&part.sandbox))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.kill();
        self.0.iter().for_each(|part| part.server.clean_up(&part.sandbox));
    }
}

impl RunningServer {
    fn start(&mut self) -> io::Result<()> {
        let process = Process::start(self.server, &self.sandbox)?;
        let begin = clock();
        while !self.server.is_ready(&self.sandbox) {
            if !process_tree::is_alive(process.0.id()) || clock() - begin > READY_WITHIN {
                let log = std::fs::read_to_string(self.sandbox.log()).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(10).collect();
                let last: Vec<&str> = last.into_iter().rev().collect();
                return Err(io::Error::other(format!("a server did not start:\n{}", last.join("\n"))));
            }
            pause();
        }
        self.process = Some(process);
        Ok(())
    }
}

/// A process, killed with all that it started when it is dropped, and by the system when we die.
struct Process(Child);

impl Process {
    /// What it writes is added to the log.
    fn start(server: &dyn Server, sandbox: &Sandbox) -> io::Result<Self> {
        let program = server.program(sandbox)?;
        let mut command = match find("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        server.configure(sandbox, &mut command)?;
        let log = File::options().create(true).append(true).open(sandbox.log())?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // Ctrl-C is for us; we end, and what we started with us.
        command.process_group(0);
        command.spawn().map(Self)
    }
}

impl Drop for Process {
    /// SIGKILL to all, the first one first: then nobody is born. Returns when they are gone, so that others can have what they held.
    fn drop(&mut self) {
        let members = process_tree::members(self.0.id());
        for pid in members.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.0.wait();
        while members[1..].iter().any(|pid| process_tree::is_alive(*pid)) {
            pause();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "between two questions to a process that cannot call us")]
fn pause() {
    thread::sleep(PAUSE);
}
