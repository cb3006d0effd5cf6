//! Every command line and every example of the two READMEs, and the calls and workers of the guides, run as written.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
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

/// A server as `cargo run -- serve` starts it, on a port and folder of its own.
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

    /// Runs a line in a shell where `duly` and `cargo run --` are the program under test.
    fn run(&self, line: &str) -> Output {
        let line = line.replace("cargo run --", "duly").replace("127.0.0.1:7380", &self.addr.to_string());
        let mut shell = Command::new("sh");
        shell.args(["-ec", &line]).env("PATH", path()).env("DULY_URL", format!("http://{}", self.addr));
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

/// Where `duly` is the program under test.
fn path() -> std::ffi::OsString {
    let own = Path::new(env!("CARGO_BIN_EXE_duly"));
    let folders = ["/usr/local/bin", "/usr/bin", "/bin"].map(Path::new);
    std::env::join_paths([own.parent().unwrap()].into_iter().chain(folders)).unwrap()
}

fn duly(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duly"));
    command.current_dir(folder);
    command
}

/// Whether a program is there. If not, that is said; in CI it is a failure.
fn there(program: &str) -> bool {
    // A shell need not know its version.
    let is_found = |output: std::process::Output| output.status.success() || program == "sh";
    let found = Command::new(program).arg("--version").output().is_ok_and(is_found);
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
                // The server above is this line; the demo has tests of its own (cli/demo.rs), and the tests a step in `cargo xtask test`.
                "cargo run -- serve" | "cargo run -- demo" | "cargo xtask test" => {
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
fn the_configuration_of_the_readme_and_of_the_guides_is_accepted() {
    let guides = TRANSLATED.map(|(name, english, _)| (name, english));
    for (name, text) in READMES.into_iter().chain(guides).chain([("testing", TESTING_GUIDE)]) {
        // Files of a real machine are read, and are not here.
        let examples = blocks(text, "toml").into_iter().filter(|example| !example.contains("/etc/duly/"));
        for example in examples {
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
    let links = |text: &'static str| {
        let same = |link: &str| link.replace(".zh-CN.md", ".md").replace("overview-zh", "overview-light");
        let links = text.split("](").skip(1).map(|rest| same(rest.split(')').next().unwrap()));
        links.filter(|link| link != "README.md").collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(links(english), links(chinese), "both lead to the same pages");
    let quick = blocks(english, "sh")[0].lines().count();
    assert_eq!(quick, 2, "the quick start has exactly two commands");
}

/// Guides that have the same examples in both languages.
const TRANSLATED: [(&str, &str, &str); 2] = [
    (
        "worker",
        include_str!("../../../docs/guide/worker.md"),
        include_str!("../../../docs/guide/worker.zh-CN.md"),
    ),
    (
        "deploy",
        include_str!("../../../docs/guide/deploy.md"),
        include_str!("../../../docs/guide/deploy.zh-CN.md"),
    ),
];

#[test]
fn a_guide_has_the_same_examples_in_both_languages() {
    // What is between the fences, without the comments of a shell.
    let examples = |text: &'static str| {
        let blocks = text.split("\n```").skip(1).step_by(2);
        let lines = blocks.flat_map(str::lines).filter(|line| !line.starts_with('#'));
        lines.collect::<Vec<_>>()
    };
    for (name, english, chinese) in TRANSLATED {
        assert_eq!(examples(english), examples(chinese), "{name}");
    }
}

const TESTING_GUIDE: &str = include_str!("../../../docs/guide/testing.md");
const HTTP_GUIDE: &str = include_str!("../../../docs/guide/http.md");

#[test]
fn every_call_of_the_http_guide_gets_the_answer_below_it() {
    if !there("curl") {
        return;
    }
    let server = Server::start();
    let (mut receipt, mut compared) = (String::new(), 0);
    for part in HTTP_GUIDE.split("```sh\n").skip(1) {
        let (script, rest) = part.split_once("```").unwrap();
        let output = server.run(&script.replace("RECEIPT", &receipt));
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{script}\n{out}\n{}", String::from_utf8_lossy(&output.stderr));
        let Some(written) = rest.strip_prefix("\n```json\n") else { continue };
        let written = serde_json::from_str(written.split_once("```").unwrap().0).unwrap();
        let answers = serde_json::Deserializer::from_str(&out).into_iter::<serde_json::Value>();
        let answer = answers.last().unwrap().unwrap();
        if let Some(received) = answer["messages"][0]["receipt"].as_str() {
            received.clone_into(&mut receipt);
        }
        assert_eq!(stable(answer), stable(written), "{script}");
        compared += 1;
    }
    assert!(compared >= 25, "only {compared} answers were compared");
}

/// An answer without what differs from run to run: numbers, times, receipts, texts for people, alerts.
fn stable(answer: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    const CHANGING: [&str; 9] =
        ["accepted_at", "alerts", "as_of", "at", "deliver_at", "detail", "ended_at", "from", "receipt"];
    match answer {
        Value::Number(_) => Value::Null,
        Value::Array(items) => items.into_iter().map(stable).collect(),
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| {
                let value = if CHANGING.contains(&name.as_str()) { Value::Null } else { stable(value) };
                (name, value)
            })
            .collect(),
        other => other,
    }
}

#[test]
fn the_test_in_node_of_the_testing_guide_passes() {
    if !there("node") {
        return;
    }
    let [test] = blocks(TESTING_GUIDE, "js")[..] else { panic!("one test in Node") };
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("order.test.mjs"), test).unwrap();
    let mut node = Command::new("node");
    node.args(["--test", "order.test.mjs"]).current_dir(folder.path()).env("PATH", path());
    let output = node.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

const GUIDE: &str = TRANSLATED[0].1;

#[test]
fn the_calls_of_the_worker_guide_succeed() {
    if !there("curl") {
        return;
    }
    let server = Server::start();
    let calls: Vec<_> = blocks(GUIDE, "sh").into_iter().filter(|block| !block.contains("handle")).collect();
    let [send, receive] = calls[..] else { panic!("two calls beside the worker: {calls:?}") };
    assert!(server.run(send).status.success());
    let received = server.run(receive).stdout;
    assert!(String::from_utf8_lossy(&received).contains(r#""json":{"order":42}"#));
}

/// A worker fails so often before it does its work.
const FAILURES: usize = 3;
/// One that fails at first, by language: the program, its file, the line of the guide that a `handle` goes behind (the first if there is
/// none), and that `handle`.
const WORKERS: [(&str, &str, &str, &str, &str); 4] = [
    ("sh", "sh", "worker.sh", "", "exec 3>&1\n"),
    (
        "python",
        "python3",
        "worker.py",
        "",
        "calls = 0\n\
         def handle(order):\n    global calls\n    calls += 1\n    \
         if calls <= 3: raise RuntimeError('my database is away')\n    \
         print('handled', order['order'], flush=True)\n",
    ),
    (
        "js",
        "node",
        "worker.mjs",
        "",
        "let calls = 0;\n\
         function handle(order) {\n  \
         if (++calls <= 3) throw new Error('my database is away');\n  console.log('handled', order.order);\n}\n",
    ),
    (
        "java",
        "java",
        "Worker.java",
        "class Worker {\n",
        "  static int calls = 0;\n  \
         static void handle(String answer) {\n    \
         if (++calls <= 3) throw new RuntimeException(\"my database is away\");\n    \
         if (answer.contains(\"\\\"json\\\":{\\\"order\\\":42}\")) System.out.println(\"handled 42\");\n  }\n",
    ),
];

/// The program that the worker in the shell calls. Its output is not seen there, so it uses the descriptor that was opened for it.
const HANDLE: &str = "#!/bin/sh\n\
     echo >>calls\n\
     [ $(wc -l <calls) -gt 3 ] || { echo 'my database is away' >&2; exit 1; }\n\
     grep -q '\"json\":{\"order\":42}' && echo 'handled 42' >&3\n";

/// A child that ends with the test.
struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_worker_of_the_guide_has_at_most_fifteen_lines() {
    for language in ["python", "js", "java", "rust", "sh"] {
        let workers = workers(GUIDE, language);
        assert!(!workers.is_empty(), "{language}");
        for code in workers {
            let lines = || code.lines().filter(|line| !line.trim().is_empty());
            assert!(lines().count() <= 15, "{language}: {}", lines().count());
            assert!(lines().all(|line| line.len() <= 120), "{language}");
        }
    }
}

/// The blocks of a language that call what the reader writes.
fn workers<'a>(guide: &'a str, language: &str) -> Vec<&'a str> {
    blocks(guide, language).into_iter().filter(|code| code.contains("handle")).collect()
}

/// Starts a worker of the guide in a folder, with a `handle` that fails at first.
fn worker(folder: &Path, server: SocketAddr, language: &str) -> Worker {
    let (_, program, file, behind, handle) = WORKERS.into_iter().find(|worker| worker.0 == language).unwrap();
    let [code] = workers(GUIDE, language)[..] else { panic!("one worker in {language}") };
    let handle_file = folder.join("handle");
    std::fs::write(&handle_file, HANDLE).unwrap();
    std::fs::set_permissions(handle_file, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (before, after) = if behind.is_empty() { ("", code) } else { code.split_once(behind).unwrap() };
    std::fs::write(folder.join(file), format!("{before}{behind}{handle}{after}")).unwrap();
    let mut command = Command::new(program);
    command.arg(file).current_dir(folder).env("DULY_URL", format!("http://{server}"));
    Worker(command.stdout(Stdio::piped()).spawn().unwrap())
}

impl Worker {
    /// What it says when it has handled something. What it says before is of errors.
    fn handled(&mut self) -> String {
        let said = BufReader::new(self.0.stdout.take().unwrap()).lines().map_while(Result::ok);
        said.into_iter().find(|line| line.starts_with("handled")).unwrap_or_default()
    }
}

/// Reads a call and gives its path.
fn call(stream: &mut TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut path, mut body) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(rest) = line.strip_prefix("post ") {
            path = rest.split(' ').next().unwrap().to_owned();
        } else if let Some(length) = line.strip_prefix("content-length: ") {
            body = length.parse().unwrap();
        } else if line.is_empty() {
            reader.read_exact(&mut vec![0; body]).unwrap();
            return path;
        }
    }
}

/// Answers as Duly does, but hangs up in the middle of its first answer.
fn hang_up_once(listener: &TcpListener) {
    const ANSWER: &str = r#"{"messages":[{"id":"42","receipt":"r","topic":"order","json":{"order":42}}]}"#;
    let mut is_first = true;
    loop {
        let (mut stream, _) = listener.accept().unwrap();
        let body = if call(&mut stream).ends_with("/receive") { ANSWER } else { r#"{"results":[]}"# };
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/json";
        let answer = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let part = if std::mem::take(&mut is_first) { answer.len() - 20 } else { answer.len() };
        // Whoever has gone away does not read it.
        let _ = stream.write_all(&answer.as_bytes()[..part]);
    }
}

#[test]
fn the_workers_of_the_guide_go_on_after_a_connection_that_was_closed_in_the_middle_of_an_answer() {
    for (language, program, ..) in WORKERS {
        if !there(program) {
            continue;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (addr, folder) = (listener.local_addr().unwrap(), tempfile::tempdir().unwrap());
        std::thread::spawn(move || hang_up_once(&listener));
        assert_eq!(worker(folder.path(), addr, language).handled(), "handled 42", "{language}");
    }
}

#[test]
fn the_workers_of_the_guide_go_on_after_their_database_was_away() {
    for (language, program, ..) in WORKERS {
        if !there(program) {
            continue;
        }
        let server = Server::start();
        let message =
            r#"{"topic":"order","id":"42","json":{"order":42},"retry":{"min":"20ms","max":"80ms"}}"#;
        let sent = server.run(&format!("curl -sf http://127.0.0.1:7380/v1/messages -d '{message}'"));
        assert!(sent.status.success(), "{sent:?}");
        let mut worker = worker(server.folder.path(), server.addr, language);
        assert_eq!(worker.handled(), "handled 42", "{language}");
        // It is acknowledged after it was handled.
        let known = loop {
            let known = server.run("duly get 42 -o json");
            let known: serde_json::Value = serde_json::from_slice(&known.stdout).unwrap();
            if known["state"] != "in_flight" {
                break known;
            }
        };
        assert_eq!(known["state"], "delivered", "{language}: {known}");
        let failed = known["attempts"].as_array().unwrap().iter().filter(|attempt| {
            attempt["outcome"] == "failed"
                && attempt["detail"].as_str().unwrap().contains("my database is away")
        });
        assert_eq!(failed.count(), FAILURES, "{language}: {known}");
    }
}
