//! A real RocketMQ: a name server and one broker, or a cluster.

mod cluster;
mod remoting;
mod settings;

use std::{fs, net::Ipv4Addr, path::PathBuf, sync::OnceLock, time::Duration};

pub use cluster::{Cluster, Node};

use super::{jars, port_lease::SECOND, program::Program, proxy::Proxy, wait_until};
use crate::tls::ClientCertificate;

/// What `cargo xtask servers` brings.
const LIST: &str = include_str!("../../../jars/rocketmq/pom.xml");
/// Both are there within this, or the test fails: it takes seconds, and on a busy machine many.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Where the proxy is, on the port of the broker.
const PROXIED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The class that each of them starts with, and the file in which it says that it has.
const NAMESRV: (&str, &str) = ("org.apache.rocketmq.namesrv.NamesrvStartup", "broker_default.log");
const BROKER: (&str, &str) = ("org.apache.rocketmq.broker.BrokerStartup", "broker.log");

/// What a name server is asked to see whom it knows.
const GET_BROKER_CLUSTER_INFO: i32 = 106;

/// How a broker is started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Who may send, if not everybody: a key and its secret.
    pub user: Option<(String, String)>,
    /// Whether the name server gives clients the address of the proxy.
    pub proxied: bool,
    /// Whether topics are made by sending to them.
    pub makes_topics: bool,
    /// More lines of the broker's configuration, such as `flushDiskType=SYNC_FLUSH`.
    pub more: Vec<String>,
}

/// Whether RocketMQ is installed; if not, says that its tests are skipped, or fails with `CI=true`.
pub fn installed() -> bool {
    jars::installed("rocketmq", LIST)
}

/// A pair that lives as long as this process, for tests that keep to topics of their own, which are made by sending to
/// them. Nobody stops it.
pub fn shared() -> &'static Rocketmq {
    static SHARED: OnceLock<Rocketmq> = OnceLock::new();
    SHARED.get_or_init(|| Rocketmq::with(Options { makes_topics: true, ..Options::default() }))
}

/// One name server and one broker. Ports and data stay over restarts.
#[derive(Debug)]
pub struct Rocketmq {
    // Declared before what it speaks to.
    broker: Program,
    namesrv: Program,
    proxy: Proxy,
    options: Options,
    clients: ClientCertificate,
}

impl Rocketmq {
    /// A pair with these options, running.
    ///
    /// # Panics
    /// If one of them does not start.
    pub fn with(options: Options) -> Self {
        // The broker also takes the port two below its own, which nobody keeps for it.
        let mut words = String::new();
        for _ in 0..3 {
            match Self::try_with(options.clone()) {
                Ok(rocketmq) => return rocketmq,
                Err(why) => words = why,
            }
        }
        panic!("{words}");
    }

    fn try_with(options: Options) -> Result<Self, String> {
        let (broker, namesrv) = (Program::new("java"), Program::new("java"));
        let proxy = Proxy::beside(PROXIED, broker.port());
        let rocketmq = Self { broker, namesrv, proxy, options, clients: ClientCertificate::new() };
        fs::write(rocketmq.namesrv.folder().join("settings"), rocketmq.name_settings()).unwrap();
        fs::write(rocketmq.broker.folder().join("settings"), rocketmq.broker_settings()).unwrap();
        rocketmq.write_keys();
        rocketmq.run(&rocketmq.namesrv, NAMESRV)?;
        rocketmq.run(&rocketmq.broker, BROKER)?;
        rocketmq.wait_until_known();
        Ok(rocketmq)
    }

    /// Where clients ask for the way.
    pub fn namesrv(&self) -> String {
        format!("127.0.0.1:{}", self.namesrv.port())
    }

    /// Where the broker itself is, past the proxy.
    pub fn broker(&self) -> String {
        format!("127.0.0.1:{}", self.broker.port())
    }

    /// The file with the certificate that both show to whoever comes by TLS, and who must show [`clients`](Self::clients).
    pub fn certificate(&self) -> PathBuf {
        self.broker.folder().join("certificate.pem")
    }

    /// The certificate that both know.
    pub fn clients(&self) -> &ClientCertificate {
        &self.clients
    }

    /// The address of the broker that the name server gives to clients.
    fn advertised(&self) -> Ipv4Addr {
        if self.options.proxied { PROXIED } else { Ipv4Addr::LOCALHOST }
    }

    /// The proxy, through which every client of a broker goes that was asked for with it. Tests that
    /// break it for more than one connection share it with nobody.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    /// kill -9 of the broker.
    pub fn kill(&self) {
        self.broker.kill();
    }

    /// Starts the broker again, after a kill.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(&self) {
        self.run(&self.broker, BROKER).unwrap();
        self.wait_until_known();
    }

    /// kill -9 of the name server.
    pub fn kill_namesrv(&self) {
        self.namesrv.kill();
    }

    /// Starts the name server again, after a kill. It knows the broker when that next tells it of itself.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_namesrv(&self) {
        self.run(&self.namesrv, NAMESRV).unwrap();
    }

    /// SIGSTOP of the broker: it does nothing, and its connections stay.
    pub fn pause(&self) {
        self.broker.pause();
    }

    /// SIGCONT: the broker goes on.
    pub fn cont(&self) {
        self.broker.cont();
    }

    /// The broker tells the name server of itself after it has said that it is there.
    fn wait_until_known(&self) {
        wait_until("the name server knows the broker", READY_WITHIN, || {
            remoting::ask(&self.namesrv(), GET_BROKER_CLUSTER_INFO, &[])
                .is_ok_and(|reply| reply.contains("brokerName"))
        });
    }

    fn run(&self, program: &Program, main: (&str, &str)) -> Result<(), String> {
        run(program, main, &[format!("-Dtls.config.file={}", self.tls_settings().display())])
    }

    /// The port of the broker that its standby would use.
    fn standby_port(&self) -> u16 {
        self.broker.port() + SECOND
    }
}

/// Starts the class `main` with more settings of the Java machine, and waits until its log says that it is there.
fn run(program: &Program, (main, log): (&str, &str), more: &[String]) -> Result<(), String> {
    let folder = program.folder().display().to_string();
    let mut settings: Vec<String> =
        ["rocketmq.home.dir", "user.home"].map(|name| format!("-D{name}={folder}")).to_vec();
    settings.extend(more.iter().cloned());
    let log: PathBuf = program.folder().join("logs/rocketmqlogs").join(log);
    let said = || fs::read_to_string(&log).unwrap_or_default();
    let times = said().matches("boot success").count();
    let mut words = jars::words("rocketmq", LIST, &settings, main);
    words.extend(["-c".into(), format!("{folder}/settings")]);
    program.start(&words);
    let mut alive = true;
    wait_until("RocketMQ has started", READY_WITHIN, || {
        alive = program.is_alive();
        !alive || said().matches("boot success").count() > times
    });
    if alive { Ok(()) } else { Err(format!("{main} did not start:\n{}\n{}", program.log(), said())) }
}

#[cfg(test)]
mod tests;
