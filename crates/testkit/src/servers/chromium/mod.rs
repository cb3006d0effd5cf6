//! A real Chromium, driven by its own chromedriver.

use std::{fs, net::TcpStream, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use super::{jars, program::Program, wait_until};

/// The driver answers within this, or the test fails.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Whether Chromium is installed; if not, says that its tests are skipped, or fails with `CI=true`.
pub fn installed() -> bool {
    super::installed("chromium", &["chromium", "chromedriver", "setpriv"])
}

/// The script of axe-core, an accessibility checker, to be run in a page; if it is not there, says so as [`installed`] does.
pub fn axe() -> Option<String> {
    const LIST: &str = include_str!("../../../jars/axe/pom.xml");
    jars::file("axe", LIST, "axe.min.js").map(|file| fs::read_to_string(file).unwrap())
}

/// A chromedriver that speaks WebDriver. What it starts dies with it.
#[derive(Debug)]
pub struct Chromium {
    program: Program,
}

impl Chromium {
    /// A driver, with no browser yet.
    ///
    /// # Panics
    /// If Chromium is not installed or its driver does not start.
    pub fn start() -> Self {
        let chromium = Self { program: Program::new("chromedriver") };
        // The driver leaves its browser behind when it is killed, unless the system is told to end both.
        let script = "#!/bin/sh\nexec setpriv --pdeathsig KILL chromium \"$@\"\n";
        let file = chromium.program.folder().join("browser");
        fs::write(&file, script).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        chromium.program.start(&[format!("--port={}", chromium.port())]);
        wait_until("chromedriver answers", READY_WITHIN, || {
            assert!(chromium.program.is_alive(), "chromedriver did not start:\n{}", chromium.program.log());
            TcpStream::connect(("127.0.0.1", chromium.port())).is_ok()
        });
        chromium
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.program.port()
    }

    /// The program that a session is to name as its browser.
    pub fn browser(&self) -> String {
        self.folder().join("browser").display().to_string()
    }

    /// A folder that is its alone.
    pub fn folder(&self) -> &Path {
        self.program.folder()
    }
}
