//! One child process that does not outlive us.

use std::{
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock, mpsc},
    thread,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::user::User;

/// A running process, killed when dropped.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    /// Starts `program` so that the system kills it when this process ends, however it ends.
    pub(super) fn start(program: &str, arguments: &[String]) -> Self {
        Self::with_output(program, arguments, None, Stdio::null())
    }

    /// The same as this user, and what it writes to its standard error goes there.
    pub(super) fn with_output(program: &str, arguments: &[String], user: Option<User>, to: Stdio) -> Self {
        let mut command = if super::find("setpriv").is_some() {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "KILL", program]);
            command
        } else {
            Command::new(program)
        };
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(to);
        // Ctrl-C is for the tests; they end, and what they started with them.
        command.process_group(0);
        if let Some(user) = user {
            user.run(&mut command);
        }
        Self(spawn(command))
    }

    /// Whether it is there, running or paused.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// SIGSTOP: it does nothing and its connections stay.
    ///
    /// Returns when all its threads stand still: the signal alone leaves them some time to answer what comes next.
    pub(super) fn pause(&self) {
        self.signal(Signal::STOP);
        // What is learnt is left for the next who asks, so that nobody misses the end of the process.
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.0)), stopped).unwrap();
    }

    /// SIGCONT: it goes on.
    pub(super) fn cont(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Process {
    /// SIGKILL, and waits for the end.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts it from a thread that lives as long as we do: the system sends the signal of the parent's death when the *thread*
/// ends that started the child, and the thread of a test ends with the test.
fn spawn(command: Command) -> Child {
    type Order = (Command, mpsc::Sender<std::io::Result<Child>>);
    static SPAWNER: OnceLock<Mutex<mpsc::Sender<Order>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, incoming) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in incoming {
                let _ = answer.send(command.spawn());
            }
        });
        Mutex::new(orders)
    });
    let (answer, answered) = mpsc::channel();
    let shown = format!("{command:?}");
    spawner.lock().unwrap().send((command, answer)).unwrap();
    answered.recv().unwrap().unwrap_or_else(|error| panic!("cannot start {shown}: {error}"))
}
