//! Every command line and every example of the two READMEs, run as written.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::{
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

const READMES: [(&str, &str); 2] = [
    ("README.md", include_str!("../../../README.md")),
    ("README.zh-CN.md", include_str!("../../../README.zh-CN.md")),
];

/// The fenced blocks of a language.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let open = format!("```{language}\n");
    text.split(&open).skip(1).map(|rest| rest.split_once("```").unwrap().0).collect()
}

/// A server as `cargo run --release -- serve` starts it, on a port and folder of its own.
struct Server {
    child: Child,
    addr: SocketAddr,
    folder: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = duly(folder.path());
        command.arg("serve").env("DULY__LISTEN", addr.to_string());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while std::net::TcpStream::connect_timeout(&addr, Duration::from_secs(1)).is_err() {
            std::thread::yield_now();
        }
        Self { child, addr, folder }
    }

    /// Runs a line in a shell where `duly` and `cargo run --release --` are the program under test.
    fn run(&self, line: &str) -> Output {
        let own = Path::new(env!("CARGO_BIN_EXE_duly"));
        let line =
            line.replace("cargo run --release --", "duly").replace("127.0.0.1:7380", &self.addr.to_string());
        let path =
            std::env::join_paths([own.parent().unwrap(), Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-ec", &line]).env("PATH", path).env("DULY_URL", format!("http://{}", self.addr));
        shell.current_dir(self.folder.path()).output().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn duly(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duly"));
    command.current_dir(folder);
    command
}

/// Whether a program is there. If not, that is said; in CI it is a failure.
fn there(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        println!("SKIPPED the README's lines for {program} (not installed)");
        let ci = std::env::vars().any(|(name, value)| name == "CI" && value == "true");
        assert!(!ci, "{program} is not installed: in CI a skip is a failure");
    }
    found
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    blocks(text, "sh")
        .into_iter()
        .flat_map(str::lines)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[test]
fn every_command_of_the_readme_does_what_it_says() {
    for (name, text) in READMES {
        let server = Server::start();
        let mut ran = 0;
        for line in lines(text) {
            match line {
                // The server above is this line; the demo and the tests have steps of their own in `cargo xtask test`.
                "cargo run --release -- serve" | "cargo run --release -- demo" | "cargo xtask test" => {
                    continue;
                }
                line if line.starts_with("curl") && !there("curl") => continue,
                _ => {}
            }
            let output = server.run(line);
            let (out, err) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert!(output.status.success(), "{name}: {line}\n{out}\n{err}");
            assert!(!out.contains("\"code\":"), "{name}: {line}\n{out}");
            ran += 1;
        }
        assert!(ran >= 7, "{name}: only {ran} lines were found");
    }
}

#[test]
fn the_demo_ends_well() {
    let folder = tempfile::tempdir().unwrap();
    let output = duly(folder.path()).arg("demo").output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{out}\n{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing behind");
}

#[test]
fn the_java_example_sends_and_receives() {
    for (name, text) in READMES {
        let [example] = blocks(text, "java")[..] else { panic!("{name}: one example in Java") };
        if !there("java") {
            continue;
        }
        let server = Server::start();
        let file: PathBuf = server.folder.path().join("Later.java");
        std::fs::write(&file, example).unwrap();
        let output = Command::new("java")
            .arg(&file)
            .env("DULY_URL", format!("http://{}", server.addr))
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(out.contains("from the JVM"), "{out}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_configuration_of_the_readme_is_accepted() {
    for (name, text) in READMES {
        for example in blocks(text, "toml") {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("duly.toml"), example).unwrap();
            let output = duly(folder.path()).args(["config", "check"]).output().unwrap();
            let err = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {err}");
            let all = [output.stdout, output.stderr].concat();
            assert!(
                !String::from_utf8_lossy(&all).contains("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
                "the secret is shown"
            );
        }
    }
}

#[test]
fn both_readmes_have_the_same_examples() {
    let [(_, english), (_, chinese)] = READMES;
    for language in ["rust", "java", "toml"] {
        assert_eq!(blocks(english, language), blocks(chinese, language), "{language}");
    }
    assert_eq!(lines(english).collect::<Vec<_>>(), lines(chinese).collect::<Vec<_>>());
    let quick = blocks(english, "sh")[0].lines().count();
    assert_eq!(quick, 2, "the quick start has exactly two commands");
}
