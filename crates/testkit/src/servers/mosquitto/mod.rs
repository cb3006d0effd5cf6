//! Real Mosquitto brokers.

use std::{fs, ops::Deref, process::Command, time::Duration};

use super::{port_lease::SECOND, program::Program};

/// A broker answers within this, or the test fails.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// The user `duly` may do everything but write to topics below `closed/`.
const RIGHTS: &str = "user duly\ntopic readwrite #\ntopic deny closed/#\n";

/// Whether Mosquitto is installed; if not, says that its tests are skipped, or fails with `CI=true`.
pub fn installed() -> bool {
    super::installed("mosquitto", &["mosquitto", "mosquitto_passwd"])
}

/// One broker, which keeps what it has on the disk. The ports and the data stay over restarts.
///
/// It knows the user `duly` with the password `p@ss`, who may not write to topics below `closed/`.
#[derive(Debug)]
pub struct Mosquitto {
    program: Program,
}

impl Mosquitto {
    /// A broker.
    pub fn single() -> Self {
        Self::with("")
    }

    /// A broker with these lines at the end of its configuration besides. `FOLDER` and `SECOND` stand for its folder and its
    /// second port.
    ///
    /// # Panics
    /// If Mosquitto is not installed or does not start.
    pub fn with(more: &str) -> Self {
        let mosquitto = Self { program: Program::new("mosquitto") };
        let folder = mosquitto.folder();
        fs::write(folder.join("rights"), RIGHTS).unwrap();
        let passwords = folder.join("passwords");
        let mut make = Command::new("mosquitto_passwd");
        make.args(["-b", "-c"]).arg(&passwords).args(["duly", "p@ss"]);
        assert!(make.status().unwrap().success(), "mosquitto_passwd");
        let config = format!(
            "user root\nlistener {} 127.0.0.1\nallow_anonymous false\npassword_file FOLDER/passwords\nacl_file FOLDER/rights\n\
             persistence true\npersistence_location FOLDER/\nautosave_interval 1\nautosave_on_changes true\n\
             max_queued_messages 0\nmax_inflight_messages 0\n{more}\n",
            mosquitto.port()
        );
        let config = config
            .replace("FOLDER", &folder.display().to_string())
            .replace("SECOND", &mosquitto.tls_port().to_string());
        fs::write(folder.join("mosquitto.conf"), config).unwrap();
        mosquitto.start();
        mosquitto
    }

    /// Where those go who know the password.
    pub fn url(&self) -> String {
        format!("mqtt://duly:p%40ss@127.0.0.1:{}", self.port())
    }

    /// The second port, for a listener with TLS.
    pub fn tls_port(&self) -> u16 {
        self.port() + SECOND
    }

    /// Starts it again, after a kill.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(&self) {
        self.program.start(&["-c".into(), self.folder().join("mosquitto.conf").display().to_string()]);
        self.program.wait_until_ready("mosquitto", READY_WITHIN, || self.is_listening());
    }

    /// kill -9 and start again.
    pub fn restart(&self) {
        self.kill();
        self.start();
    }
}

/// The program: its port and folder, its log, kill and pause.
impl Deref for Mosquitto {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_comes_back_to_its_port() {
        if !installed() {
            return;
        }
        let mosquitto = Mosquitto::single();
        let port = mosquitto.port();
        mosquitto.restart();
        assert_eq!(mosquitto.port(), port);
        mosquitto.kill();
        assert!(!mosquitto.is_listening());
    }
}
