//! Tokens and certificates, from the side of whoever calls.

use std::fs;

use super::{duly, run, serve::Process};

#[test]
fn a_token_comes_from_an_option_the_environment_or_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let made = run(duly().args(["token", "--name", "me", "--role", "admin"]), b"");
    let (token, config) = made.out.split_once("\n\n").unwrap();
    fs::write(folder.path().join("duly.toml"), config).unwrap();
    let file = folder.path().join("token");
    fs::write(&file, format!("{token}\n")).unwrap();
    let server = Process::start(folder.path(), "127.0.0.1:0");
    let ask = || {
        let mut command = duly();
        command.env("DULY_URL", &server.url).args(["send", "order", "x"]);
        command
    };

    let without = run(&mut ask(), b"");
    assert_eq!(without.code, 1, "{without:?}");
    assert!(without.words.contains("[unauthorized]") && without.words.contains("--token"), "{without:?}");
    let wrong = run(ask().args(["--token", "dly_wrong"]), b"");
    assert_eq!(wrong.code, 1, "{wrong:?}");
    assert!(!wrong.words.contains("dly_wrong"), "{wrong:?}");
    for command in [
        ask().args(["--token", token]),
        ask().arg("--token-file").arg(&file),
        ask().env("DULY_TOKEN", token),
        ask().env("DULY_TOKEN_FILE", &file),
        // What is named goes before what is merely there.
        ask().env("DULY_TOKEN", "dly_wrong").arg("--token-file").arg(&file),
    ] {
        let run = run(command, b"");
        assert_eq!(run.code, 0, "{run:?}");
    }
}

#[test]
fn an_own_root_is_trusted_when_it_is_named_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    fs::write(&cert, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    fs::write(folder.path().join("duly.toml"), "[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n").unwrap();
    let server = Process::start(folder.path(), "127.0.0.1:0");
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let send = |args: &[&str]| run(duly().args(["send", "order", "x", "--url", &server.url]).args(args), b"");

    let trusted = send(&["--ca", cert.to_str().unwrap()]);
    assert_eq!(trusted.code, 0, "{trusted:?}");
    let stranger = send(&[]);
    assert!(matches!(stranger.code, 1 | 5), "{stranger:?}");
    assert!(stranger.words.contains("--ca"), "{stranger:?}");
    let no_root = send(&["--ca", key.to_str().unwrap()]);
    assert_eq!(no_root.code, 1, "{no_root:?}");
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let mut command = duly();
    for name in ["DULY_URL", "DULY_TOKEN", "DULY_TOKEN_FILE", "DULY_CA"] {
        command.env(name, "");
    }
    let run = run(command.arg("levels"), b"");
    // Whether a server is there or not, the command was understood.
    assert_ne!(run.code, 2, "{run:?}");
    assert!(run.code != 5 || run.words.contains("127.0.0.1:7380"), "{run:?}");
}
