//! Real ActiveMQ Artemis brokers, which speak STOMP and MQTT 5.

use std::{fs, ops::Deref, sync::OnceLock, time::Duration};

use super::{jars, port_lease::SECOND, program::Program};

/// What `cargo xtask servers` brings.
const LIST: &str = include_str!("../../../jars/artemis/pom.xml");
/// A broker is there within this, or the test fails.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// What it writes when it is.
const READY: &str = "AMQ221007";
const MAIN: &str = "org.apache.activemq.artemis.core.server.embedded.Main";
const BROKER: &str = include_str!("broker.xml");
const LOGIN: &str = "duly {\n  org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required\n  \
                     org.apache.activemq.jaas.properties.user=\"users\"\n  org.apache.activemq.jaas.properties.role=\"roles\";\n};\n";

/// Whether Artemis is installed; if not, says that its tests are skipped, or fails with `CI=true`.
pub fn installed() -> bool {
    jars::installed("artemis", LIST)
}

/// A broker that lives as long as this process, for tests that keep to addresses of their own. Nobody stops it.
pub fn shared() -> &'static Artemis {
    static SHARED: OnceLock<Artemis> = OnceLock::new();
    SHARED.get_or_init(Artemis::single)
}

/// One broker, whose journal is on the disk before it acknowledges. The ports and the data stay over restarts.
///
/// The user `duly` with the password `p@ss` may use addresses below `orders.` (for MQTT `orders/`) and no others. The address
/// `orders.full` takes one message and no more; `orders.missing` is not made when somebody sends to it.
#[derive(Debug)]
pub struct Artemis {
    program: Program,
}

impl Artemis {
    /// A broker.
    ///
    /// # Panics
    /// If its jars are missing or it does not start.
    pub fn single() -> Self {
        let artemis = Self { program: Program::new("java") };
        let settings = artemis.program.folder().join("etc");
        fs::create_dir_all(&settings).unwrap();
        let broker = BROKER
            .replace("FIRST", &artemis.port().to_string())
            .replace("SECOND", &artemis.mqtt_port().to_string());
        for (name, text) in [
            ("broker.xml", broker.as_str()),
            ("login.config", LOGIN),
            ("users", "duly=p@ss\n"),
            ("roles", "all=duly\n"),
        ] {
            fs::write(settings.join(name), text).unwrap();
        }
        artemis.start();
        artemis
    }

    /// Where those go who speak STOMP and know the password.
    pub fn url(&self) -> String {
        format!("stomp://duly:p%40ss@127.0.0.1:{}", self.port())
    }

    /// Where those go who speak MQTT and know the password.
    pub fn mqtt_url(&self) -> String {
        format!("mqtt://duly:p%40ss@127.0.0.1:{}", self.mqtt_port())
    }

    /// The port for MQTT.
    pub fn mqtt_port(&self) -> u16 {
        self.port() + SECOND
    }

    /// Starts it again, after a kill.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(&self) {
        let times = self.program.log().matches(READY).count();
        let folder = self.folder().display();
        let settings = [
            "-Xmx128m".to_owned(),
            "-Dorg.slf4j.simpleLogger.log.org.apache.activemq.audit=off".to_owned(),
            format!("-Djava.security.auth.login.config={folder}/etc/login.config"),
        ];
        let mut words = jars::words("artemis", LIST, &settings, MAIN);
        words.push(folder.to_string());
        self.program.start(&words);
        self.program
            .wait_until_ready("Artemis", READY_WITHIN, || self.program.log().matches(READY).count() > times);
    }

    /// kill -9 and start again.
    pub fn restart(&self) {
        self.kill();
        self.start();
    }
}

/// The program: its port and folder, its log, kill and pause.
impl Deref for Artemis {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}
