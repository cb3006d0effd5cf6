//! A real Chromium, driven by its own chromedriver.

use std::{fs, ops::Deref, os::unix::fs::PermissionsExt, time::Duration};

use super::{jars, program::Program};

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
        chromium.program.wait_until_ready("chromedriver", READY_WITHIN, || chromium.is_listening());
        chromium
    }

    /// The program that a session is to name as its browser.
    pub fn browser(&self) -> String {
        self.folder().join("browser").display().to_string()
    }
}

/// The program: its port and folder, its log, kill and pause.
impl Deref for Chromium {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}
