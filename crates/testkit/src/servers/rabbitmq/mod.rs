//! Real RabbitMQ servers.
//!
//! One takes ten seconds and more to start: tests share it, and keep to queues and exchanges of their own.

mod cluster;
mod silent;

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    ops::Deref,
    process::Command,
    sync::{Arc, OnceLock},
    time::Duration,
};

pub use cluster::Cluster;
pub use silent::{SilentEvent, silent_broker, unconfirming_broker};

use super::{port_lease::SECOND, program::Program};

/// A server answers within this, or the test fails. Erlang starts slowly on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(180);
/// The scripts that change no user: the one on the path does.
const SCRIPTS: &str = "/usr/lib/rabbitmq/bin";

/// A user that may write to the exchange `allowed` and to nothing else; its password.
pub const FEW: (&str, &str) = ("few", "secret");

/// Whether RabbitMQ is installed; if not, says that its tests are skipped, or fails with `CI=true`.
pub fn installed() -> bool {
    super::installed("rabbitmq", &["rabbitmq-server", "epmd"])
}

/// The shared server takes no larger body.
pub const MESSAGE_BYTES_MAX: usize = 8_000_000;

/// A server that lives as long as this process. Nobody stops it or configures it.
pub fn shared() -> &'static Rabbitmq {
    static SHARED: OnceLock<Rabbitmq> = OnceLock::new();
    SHARED.get_or_init(|| Rabbitmq::with(&format!("max_message_size = {MESSAGE_BYTES_MAX}")))
}

/// One RabbitMQ server with `guest` as administrator. The ports and the data stay over restarts.
#[derive(Debug)]
pub struct Rabbitmq {
    program: Program,
    /// Where nodes of Erlang ask for each other. Without one of our own the server would start one that outlives us.
    names: Arc<Program>,
}

impl Rabbitmq {
    /// A server with the usual settings.
    pub fn single() -> Self {
        Self::with("")
    }

    /// A server with these lines in its configuration besides.
    ///
    /// # Panics
    /// If RabbitMQ is not installed or does not start.
    pub fn with(more: &str) -> Self {
        let rabbitmq = Self::prepared(names());
        rabbitmq.configure(more);
        rabbitmq.start();
        rabbitmq
    }

    /// A place for a server that does not run yet.
    fn prepared(names: Arc<Program>) -> Self {
        // It is a shell script that becomes the server itself, with its number, so that it is the server that is killed.
        Self { program: Program::new("env"), names }
    }

    fn configure(&self, more: &str) {
        let folder = self.folder().display();
        let config = format!(
            "listeners.tcp.1 = 127.0.0.1:{}\nload_definitions = {folder}/definitions.json\nlog.console = false\n{more}\n",
            self.port()
        );
        let write = |name: &str, text: &str| fs::write(self.folder().join(name), text).unwrap();
        write("rabbitmq.conf", &config);
        write("definitions.json", &definitions());
        write("plugins", "[].");
    }

    /// What other nodes of Erlang call it.
    fn node_name(&self) -> String {
        format!("t{}@localhost", self.port())
    }

    /// Where clients go, as the administrator.
    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}", self.port())
    }

    /// Starts it again, after a kill.
    pub fn start(&self) {
        self.launch();
        self.wait();
    }

    fn launch(&self) {
        let words = self.settings().into_iter().chain([format!("{SCRIPTS}/rabbitmq-server")]);
        self.program.start(&words.collect::<Vec<_>>());
    }

    fn wait(&self) {
        self.program.wait_until_ready("rabbitmq-server", READY_WITHIN, || self.is_ready());
    }

    /// kill -9 and start again.
    pub fn restart(&self) {
        self.kill();
        self.start();
    }

    /// Runs `rabbitmqctl` with these words and answers what it says. Takes seconds.
    ///
    /// # Panics
    /// If it fails.
    pub fn control(&self, words: &[&str]) -> String {
        let mut control = Command::new("env");
        control.args(self.settings()).arg(format!("{SCRIPTS}/rabbitmqctl")).args(words);
        let done = control.output().unwrap();
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Quorum queues of these names stand still: they take nothing and confirm nothing. Takes seconds.
    pub fn suspend_queues(&self, names: &[&str]) {
        self.switch(names, "suspend");
    }

    /// They go on, with all that came meanwhile.
    pub fn resume_queues(&self, names: &[&str]) {
        self.switch(names, "resume");
    }

    fn switch(&self, names: &[&str], verb: &str) {
        // A name is bound once in a scope of Erlang.
        let each = names.iter().map(|name| {
            format!(
                "(fun() -> {{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<\"/\">>, queue, <<\"{name}\">>)), \
                 {{Name, _}} = amqqueue:get_pid(Q), sys:{verb}(Name) end)()"
            )
        });
        self.control(&["eval", &format!("{}.", each.collect::<Vec<_>>().join(", "))]);
    }

    /// `NAME=value` for every program of this server.
    fn settings(&self) -> Vec<String> {
        let folder = self.folder().display();
        let port = self.port();
        [
            format!("HOME={folder}"),
            // Whoever has a socket for notices is believed to be watched, and the script to be needed no more.
            format!("NOTIFY_SOCKET={folder}/nobody"),
            format!("RABBITMQ_NODENAME={}", self.node_name()),
            format!("RABBITMQ_DIST_PORT={}", port + SECOND),
            format!("RABBITMQ_MNESIA_BASE={folder}/data"),
            format!("RABBITMQ_LOG_BASE={folder}/logs"),
            format!("RABBITMQ_ENABLED_PLUGINS_FILE={folder}/plugins"),
            format!("RABBITMQ_CONFIG_FILE={folder}/rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE=/dev/null".into(),
            format!("ERL_EPMD_PORT={}", self.names.port()),
            "ERL_EPMD_ADDRESS=127.0.0.1".into(),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} +S 1:1 +sbwt none"
                .into(),
        ]
        .into()
    }

    /// It answers whoever says the name of the protocol.
    fn is_ready(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())) else { return false };
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        stream.write_all(b"AMQP\x00\x00\x09\x01").is_ok()
            && stream.read(&mut [0; 8]).is_ok_and(|count| count > 0)
    }
}

/// The program: its port and folder, its log, kill and pause.
impl Deref for Rabbitmq {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

/// Where nodes of Erlang find each other.
fn names() -> Arc<Program> {
    let names = Program::new("epmd");
    names.start(&["-port".into(), names.port().to_string(), "-address".into(), "127.0.0.1".into()]);
    Arc::new(names)
}

fn definitions() -> String {
    let (few, secret) = FEW;
    format!(
        r#"{{"users": [{{"name": "guest", "password": "guest", "tags": "administrator"}},
                       {{"name": "{few}", "password": "{secret}", "tags": ""}}],
            "vhosts": [{{"name": "/"}}],
            "topic_permissions": [{{"user": "{few}", "vhost": "/", "exchange": "allowed", "write": "^(?!forbidden)", "read": ".*"}}],
            "permissions": [{{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}},
                            {{"user": "{few}", "vhost": "/", "configure": "^$", "write": "^allowed$", "read": "^$"}}]}}"#
    )
}
