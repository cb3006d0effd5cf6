//! A real Kafka: one process that is broker and controller.
//!
//! Topics are not made by asking for them; a test makes its own.

mod cluster;
mod settings;

use std::{
    fs,
    ops::Deref,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use super::{
    empty, jars,
    port_lease::{PortLease, SECOND},
    program::Program,
    proxy::Proxy,
    wait_until,
};
use crate::tls::ClientCertificate;

pub use cluster::{Cluster, NODES};

/// What `cargo xtask servers` brings.
const LIST: &str = include_str!("../../../jars/kafka/pom.xml");
/// A broker is there within this, or the test fails: it takes seconds, and on a busy machine many.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// What it writes when it is.
const READY: &str = "Kafka Server started";
/// The cluster that every data folder belongs to.
const CLUSTER_ID: &str = "AAAAAAAAAAAAAAAAAAAAAA";
/// The version of a data folder's own file.
const FORMAT: u32 = 1;

/// The user of the listeners that want one, who may do everything.
pub const USER: &str = "duly";
/// A user who may do nothing.
pub const WEAK: &str = "weak";
/// A user who may do what a test gives him.
pub const LIMITED: &str = "limited";
/// The password of all.
pub const PASSWORD: &str = "right";

/// Whether Kafka is installed; if not, says that its tests are skipped, or fails with `CI=true`.
pub fn installed() -> bool {
    jars::installed("kafka", LIST)
}

/// A broker that lives as long as this process, for tests that keep to topics of their own. Nobody stops it.
pub fn shared() -> &'static Kafka {
    static SHARED: OnceLock<Kafka> = OnceLock::new();
    SHARED.get_or_init(Kafka::start_new)
}

/// One broker. Its ports and its data stay over restarts.
#[derive(Debug)]
pub struct Kafka {
    // Declared before the places: the process is gone before its folder is.
    program: Program,
    guarded: PortLease,
    secure: PortLease,
    mutual: PortLease,
    clients: ClientCertificate,
    proxy: Proxy,
}

impl Kafka {
    /// A broker of one's own, running.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_new() -> Self {
        let (program, guarded, secure) = (Program::new("java"), PortLease::new(), PortLease::new());
        let (mutual, clients) = (PortLease::new(), ClientCertificate::new());
        let proxy = Proxy::to(guarded.port() + SECOND);
        let kafka = Self { program, guarded, secure, mutual, clients, proxy };
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        fs::write(kafka.certificate(), made.cert.pem()).unwrap();
        let both = format!("{}{}", made.signing_key.serialize_pem(), made.cert.pem());
        fs::write(kafka.file("both.pem"), both).unwrap();
        fs::write(kafka.file("settings"), kafka.settings()).unwrap();
        copy_empty(&kafka.file("data"), &kafka.settings());
        kafka.start();
        kafka
    }

    /// Where clients go who need no password.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.program.port())
    }

    /// Where clients go with a user and a password, by PLAIN.
    pub fn guarded(&self) -> String {
        format!("127.0.0.1:{}", self.guarded.port())
    }

    /// Where clients go by TLS.
    pub fn by_tls(&self) -> String {
        format!("127.0.0.1:{}", self.secure.port())
    }

    /// Where clients go by TLS with a user and a password, by SCRAM-SHA-256.
    pub fn guarded_by_tls(&self) -> String {
        format!("127.0.0.1:{}", self.secure.port() + SECOND)
    }

    /// Where clients go by TLS who show the certificate [`clients`](Self::clients).
    pub fn by_mutual_tls(&self) -> String {
        format!("127.0.0.1:{}", self.mutual.port())
    }

    /// The certificate that it knows.
    pub fn clients(&self) -> &ClientCertificate {
        &self.clients
    }

    /// The file with the certificate that it shows.
    pub fn certificate(&self) -> PathBuf {
        self.file("certificate.pem")
    }

    /// The address of the proxy: the broker tells whoever asks it there to come there again.
    pub fn proxied(&self) -> String {
        format!("127.0.0.1:{}", self.proxy.port())
    }

    /// The proxy. Tests that break it share it with nobody.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// Starts it again, after a kill.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(&self) {
        run(&self.program);
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }
}

/// The program: its port and folder, its log, kill and pause.
impl Deref for Kafka {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

/// Starts a broker with the settings in its folder, and waits until it is there.
fn run(program: &Program) {
    let times = program.log().matches(READY).count();
    let settings = ["warn", "kafka.server.KafkaRaftServer=info"];
    let level = |word: &str| match word.split_once('=') {
        Some((name, level)) => format!("-Dorg.slf4j.simpleLogger.log.{name}={level}"),
        None => format!("-Dorg.slf4j.simpleLogger.defaultLogLevel={word}"),
    };
    let mut words = jars::words("kafka", LIST, &settings.map(level), "kafka.Kafka");
    words.push(program.folder().join("settings").display().to_string());
    program.start(&words);
    let mut alive = true;
    wait_until("Kafka has started", READY_WITHIN, || {
        alive = program.is_alive();
        !alive || program.log().matches(READY).count() > times
    });
    assert!(alive, "Kafka did not start:\n{}", program.log());
}

/// Copies an empty data folder of node 1 to `data`, with the one user that is kept there.
fn copy_empty(data: &Path, settings: &str) {
    empty::copy(&empty::word(LIST_VERSION.as_bytes()), data, |new| {
        let file = new.with_extension("settings");
        let text = settings.replace(&data.display().to_string(), &new.display().to_string());
        fs::write(&file, text).unwrap();
        let mut java = Command::new("java");
        java.args(jars::words("kafka", LIST, &[], "kafka.tools.StorageTool"));
        java.args(["format", "--cluster-id", CLUSTER_ID, "--config"]).arg(&file);
        java.arg("--add-scram").arg(format!("SCRAM-SHA-256=[name={USER},password={PASSWORD}]"));
        let done = java.output().unwrap();
        let _ = fs::remove_file(file);
        assert!(done.status.success(), "cannot format: {}", String::from_utf8_lossy(&done.stderr));
    });
}

/// Part of the name of the empty data folder: another version makes its own.
const LIST_VERSION: &str = "kafka-4.1.0";

#[cfg(test)]
mod tests;
