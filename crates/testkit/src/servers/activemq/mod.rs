//! Real ActiveMQ brokers, which speak STOMP.

use std::{
    fs,
    ops::Deref,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use super::{port_lease::SECOND, program::Program};

/// A broker answers within this, or the test fails.
const READY_WITHIN: Duration = Duration::from_secs(120);
const BROKER: &str = include_str!("broker.xml");

/// Whether ActiveMQ is installed; if not, says that its tests are skipped, or fails with `CI=true`.
pub fn installed() -> bool {
    super::installed("activemq", &["activemq", "java", "keytool"])
}

/// One broker, whose journal is on the disk before it acknowledges. The ports and the data stay over restarts.
///
/// The user `duly` with the password `p@ss` may write to queues and topics below `orders.`, and nobody may write elsewhere. Queues below
/// `orders.blocked.` take one message, and answer no other until that is gone.
#[derive(Debug)]
pub struct Activemq {
    program: Program,
}

/// The broker that all tests of a process share who do not kill it, or take turns when they do.
pub fn shared() -> &'static Activemq {
    static SHARED: OnceLock<Activemq> = OnceLock::new();
    SHARED.get_or_init(Activemq::single)
}

impl Activemq {
    /// A broker.
    pub fn single() -> Self {
        Self::with("", "", "")
    }

    /// A broker with a connector for TLS, too, and the file of its certificate. That is for `127.0.0.1`.
    pub fn secure() -> (Self, PathBuf) {
        let tls = "<sslContext><sslContext keyStore=\"FOLDER/keys.p12\" keyStorePassword=\"changeit\"/></sslContext>";
        let connector = "<transportConnector name=\"tls\" uri=\"stomp+ssl://127.0.0.1:SECOND\"/>";
        let activemq = Self::with(tls, connector, "");
        let certificate = activemq.folder().join("cert.pem");
        (activemq, certificate)
    }

    /// The same for clients alone that show a certificate of the authority in this file.
    pub fn mutual(clients: &Path) -> (Self, PathBuf) {
        let tls = "<sslContext><sslContext keyStore=\"FOLDER/keys.p12\" keyStorePassword=\"changeit\" \
                   trustStore=\"FOLDER/trust.p12\" trustStorePassword=\"changeit\"/></sslContext>";
        let connector = "<transportConnector name=\"tls\" \
                         uri=\"stomp+ssl://127.0.0.1:SECOND?transport.needClientAuth=true\"/>";
        let activemq = Self::prepared(tls, connector, "");
        trust(activemq.folder(), clients);
        activemq.start();
        let certificate = activemq.folder().join("cert.pem");
        (activemq, certificate)
    }

    /// A broker with more in the URI of its connector, such as `?wireFormat.maxDataLength=1000`.
    pub fn limited(options: &str) -> Self {
        Self::with("", "", options)
    }

    fn with(tls: &str, connector: &str, options: &str) -> Self {
        let activemq = Self::prepared(tls, connector, options);
        activemq.start();
        activemq
    }

    /// A broker that does not run yet.
    fn prepared(tls: &str, connector: &str, options: &str) -> Self {
        let activemq = Self { program: Program::new("java") };
        let folder = activemq.folder();
        if !tls.is_empty() {
            make_keys(folder);
        }
        // They start in this order: when the last one answers, all do.
        let first = "<transportConnector name=\"stomp\" uri=\"stomp://127.0.0.1:FIRSTOPTIONS\"/>";
        let broker = BROKER
            .replace("TLS", tls)
            .replace("CONNECTORS", &format!("{connector}\n{first}"))
            .replace("OPTIONS", options)
            .replace("FIRST", &activemq.port().to_string())
            .replace("SECOND", &activemq.tls_port().to_string())
            .replace("FOLDER", &folder.display().to_string());
        fs::write(folder.join("activemq.xml"), broker).unwrap();
        activemq
    }

    /// Where those go who know the password.
    pub fn url(&self) -> String {
        format!("stomp://duly:p%40ss@127.0.0.1:{}", self.port())
    }

    /// The port for TLS.
    pub fn tls_port(&self) -> u16 {
        self.port() + SECOND
    }

    /// Starts it again, after a kill.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(&self) {
        let folder = self.folder().display();
        let mut arguments = vec!["-Xmx256m".to_owned(), "-Dactivemq.home=/usr/share/activemq".to_owned()];
        arguments.push(format!("-Dactivemq.base={folder}"));
        arguments.push(format!("-Dactivemq.conf={folder}"));
        arguments.push(format!("-Dactivemq.data={folder}/data"));
        arguments.extend(["-jar", "/usr/share/activemq/bin/activemq.jar", "start"].map(str::to_owned));
        arguments.push(format!("xbean:file:{folder}/activemq.xml"));
        self.program.start(&arguments);
        self.program.wait_until_ready("ActiveMQ", READY_WITHIN, || self.is_listening());
    }

    /// kill -9 and start again.
    pub fn restart(&self) {
        self.kill();
        self.start();
    }
}

/// The program: its port and folder, its log, kill and pause.
impl Deref for Activemq {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

/// A key as Java keeps it, and its certificate for everybody else.
fn make_keys(folder: &Path) {
    let run = |arguments: &[&str]| keytool(&folder.join("keys.p12"), arguments);
    let usage = ["-ext", "san=ip:127.0.0.1", "-ext", "bc=ca:false"];
    let key =
        ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=broker", "-validity", "30"];
    run(&[&key[..], &usage[..]].concat());
    let certificate = folder.join("cert.pem").display().to_string();
    run(&["-exportcert", "-rfc", "-file", &certificate]);
}

/// The authority of clients as Java keeps it.
fn trust(folder: &Path, authority: &Path) {
    let authority = authority.display().to_string();
    keytool(&folder.join("trust.p12"), &["-importcert", "-noprompt", "-file", &authority]);
}

fn keytool(store: &Path, arguments: &[&str]) {
    let mut command = Command::new("keytool");
    command.args(arguments).arg("-keystore").arg(store);
    command.args(["-storepass", "changeit", "-storetype", "PKCS12", "-alias", "broker"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().unwrap().success(), "keytool {}", arguments[0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_comes_back_to_its_port() {
        if !installed() {
            return;
        }
        let activemq = Activemq::single();
        let port = activemq.port();
        activemq.restart();
        assert_eq!(activemq.port(), port);
        activemq.kill();
        assert!(!activemq.is_listening());
    }
}
