//! The same change for many messages.

use std::process::{Command, Stdio};

use testkit::servers::installed;

use super::Server;

/// What a command writes to a terminal, as it writes it.
fn on_a_terminal(server: &Server, line: &str) -> String {
    let program = env!("CARGO_BIN_EXE_duly");
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &format!("\"{program}\" {line}"), "/dev/null"]);
    command.env("DULY_URL", &server.url).env("TERM", "xterm").env_remove("NO_COLOR");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{line}: {text}");
    text
}

#[test]
fn a_change_of_many_shows_on_a_terminal_how_far_it_is() {
    if !installed("a terminal", &["script"]) {
        return;
    }
    let server = Server::start();
    let lines: String = (0..10_030)
        .map(|i| {
            let topic = if i < 30 { "few" } else { "many" };
            format!("{{\"topic\":\"{topic}\",\"delay\":\"1h\",\"id\":\"o-{i}\"}}\n")
        })
        .collect();
    assert_eq!(server.run_with(&["import", "-"], lines.as_bytes()).code, 0);
    let ids: Vec<_> = (0..10).map(|i| format!("o-{i}")).collect();
    let text = on_a_terminal(&server, &format!("cancel {} --dry-run", ids.join(" ")));
    assert!(text.contains("10 of 10 messages"), "by ids: {text:?}");
    // More than one call changes.
    let text = on_a_terminal(&server, "cancel --all --yes");
    assert!(text.contains("10,000 of 10,030 messages"), "by filter: {text:?}");
    assert!(text.contains("10,030 cancelled"), "{text:?}");
}
