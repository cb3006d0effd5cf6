//! `cargo xtask servers`: the real servers that the tests start, installed if they are missing and we may.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    jars, nats, python,
    step::{Failure, Steps},
};

/// Programs that tests start or that bring or build what they need, and the package of Debian that has each.
const PROGRAMS: [(&str, &str); 18] = [
    ("redis-server", "redis-server"),
    ("redis-cli", "redis-tools"),
    ("redis-sentinel", "redis-sentinel"),
    ("mariadbd", "mariadb-server"),
    ("mariadb", "mariadb-client"),
    ("initdb", "postgresql"),
    ("rabbitmq-server", "rabbitmq-server"),
    ("activemq", "activemq"),
    ("nats-server", "nats-server"),
    ("mosquitto", "mosquitto"),
    ("promtool", "prometheus"),
    ("chromium", "chromium"),
    ("chromedriver", "chromium-driver"),
    ("java", "default-jre-headless"),
    ("mvn", "maven"),
    ("make", "make"),
    ("g++", "g++"),
    ("pkg-config", "pkg-config"),
];

/// Asked by packages whether they may start their services. Ours are started by the tests, on ports of their own.
const POLICY: &str = "/usr/sbin/policy-rc.d";

pub(crate) fn run(steps: &Steps) -> Result<(), Failure> {
    packages(steps)?;
    tools(steps)
}

/// What Debian has. The build needs some of it.
pub(crate) fn packages(steps: &Steps) -> Result<(), Failure> {
    let missing: Vec<_> = PROGRAMS.iter().filter(|(program, _)| find(program).is_none()).collect();
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    if !has_openssl() {
        packages.push("libssl-dev");
    }
    if !has_venv() {
        packages.push("python3-venv");
    }
    if packages.is_empty() {
        return Ok(());
    }
    let words = packages.join(" ");
    if find("apt-get").is_none() || !is_root() {
        return steps.skip("real servers", &format!("not installed: {words}; apt-get install {words}"));
    }
    let _quiet = Quiet::begin();
    install(steps, &packages).or_else(|_| install(steps, &packages))
}

/// What no package has, by the programs that bring it. Only tests need it.
pub(crate) fn tools(steps: &Steps) -> Result<(), Failure> {
    if find("mvn").is_some() {
        jars::run(steps)?;
    }
    nats::run(steps)?;
    if has_venv() { python::run(steps) } else { Ok(()) }
}

/// Whether Python is there with what makes a folder of tools, which Debian has in a package of its own.
fn has_venv() -> bool {
    let asked = Command::new("python3").args(["-c", "import ensurepip, venv"]).stderr(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// Whether TLS can be built into the library for Kafka, which takes that of the system.
pub(crate) fn has_openssl() -> bool {
    let asked = Command::new("pkg-config").args(["--exists", "openssl"]).status();
    asked.is_ok_and(|status| status.success())
}

fn install(steps: &Steps, packages: &[&str]) -> Result<(), Failure> {
    steps.run("list of packages", apt().arg("update"))?;
    steps.run("servers", apt().args(["install", "--yes", "--no-install-recommends"]).args(packages))
}

/// Waits for another run of apt-get instead of failing.
fn apt() -> Command {
    let mut apt = Command::new("apt-get");
    apt.args(["--quiet", "--option", "DPkg::Lock::Timeout=120"]).env("DEBIAN_FRONTEND", "noninteractive");
    apt
}

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .chain(beside_the_path())
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Where Debian puts servers that it does not put on everybody's path; the tests look there, too.
fn beside_the_path() -> impl Iterator<Item = PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    [PathBuf::from("/usr/sbin")].into_iter().chain(versions.map(|version| version.path().join("bin")))
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// While it lives, no package starts its service. A policy that is already there stays as it is.
struct Quiet(bool);

impl Quiet {
    fn begin() -> Self {
        let path = Path::new(POLICY);
        let written = !path.exists() && fs::write(path, "#!/bin/sh\nexit 101\n").is_ok();
        if written {
            // Unreadable to apt it would only be useless, not wrong.
            let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        }
        Self(written)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if self.0 {
            let _ = fs::remove_file(POLICY);
        }
    }
}
