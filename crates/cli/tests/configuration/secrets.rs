//! Secrets that are planted in the configuration come out nowhere.

use std::process::Command;

use duly_server::config::Loaded;

use crate::Folder;

/// Long and odd enough to stand nowhere by chance.
const PLANTED: &str = "pl4nt3d-s3cr3t-v4lu3";

const GOOD: &str = r#"
[store]
kind = "redis"
redis = "redis://user:pl4nt3d-s3cr3t-v4lu3@redis.example"

[sinks.shop]
kind = "webhook"
url = "https://shop.example/hooks/pl4nt3d-s3cr3t-v4lu3?sig=pl4nt3d-s3cr3t-v4lu3"
secret = ["pl4nt3d-s3cr3t-v4lu3-long-enough-to-sign-with"]
headers = { authorization = "Bearer pl4nt3d-s3cr3t-v4lu3" }

[alerts]
webhook = "https://user:pl4nt3d-s3cr3t-v4lu3@hooks.example/T0/pl4nt3d-s3cr3t-v4lu3"

[[auth.tokens]]
name = "shop"
roles = ["produce"]
token = "pl4nt3d-s3cr3t-v4lu3"
"#;

/// Each of them is wrong in a way of its own.
const FAULTY: [&str; 23] = [
    "listen = \"redis://user:pl4nt3d-s3cr3t-v4lu3@host\"",
    "[store]\nlease = \"redis://user:pl4nt3d-s3cr3t-v4lu3@host\"",
    "[store]\nkind = \"redis\"\nredis = \"redis-ring://user:pl4nt3d-s3cr3t-v4lu3@host\"",
    "[store]\nkind = \"redis\"\nredis = \"redis://user:pl4nt3d-s3cr3t-v4lu3@host:no\"",
    "[store]\nkind = \"redis\"\nredis = \"redis-sentinel://user:pl4nt3d-s3cr3t-v4lu3@host\"",
    "[store]\nkind = \"redis\"\nredis = \"pl4nt3d-s3cr3t-v4lu3\"",
    "[store]\nkind = \"mysql\"\nmysql = \"mysql://user:pl4nt3d-s3cr3t-v4lu3@host\"",
    "[store]\nkind = \"mysql\"\nmysql = \"mysql://user:pl4nt3d-s3cr3t-v4lu3@host:no/db\"",
    "[store]\nkind = \"postgres\"\npostgres = \"pl4nt3d-s3cr3t-v4lu3\"",
    "[store]\nkind = \"postgres\"\npostgres = \"mysql://user:pl4nt3d-s3cr3t-v4lu3@host/db?password=pl4nt3d-s3cr3t-v4lu3\"",
    "[store]\nredis = \"redis://user:pl4nt3d-s3cr3t-v4lu3@host\"",
    "[store]\nredis = \"pl4nt3d-s3cr3t-v4lu3",
    "pasword = \"pl4nt3d-s3cr3t-v4lu3\"",
    "[alerts]\nwebhook = \"hooks.example/pl4nt3d-s3cr3t-v4lu3\"",
    "[sinks.a]\nkind = \"webhook\"\nurl = \"ftp://user:pl4nt3d-s3cr3t-v4lu3@host\"",
    "[sinks.a]\nkind = \"webhook\"\nurl = \"https://user:pl4nt3d-s3cr3t-v4lu3@host\"\nsecrt = \"pl4nt3d-s3cr3t-v4lu3\"",
    "[sinks.a]\nkind = \"webhook\"\nurl = \"https://host\"\nsecret = { a = \"pl4nt3d-s3cr3t-v4lu3\" }",
    "[sinks.a]\nkind = \"webhook\"\nurl = \"https://host\"\nheaders = \"pl4nt3d-s3cr3t-v4lu3\"",
    "[sinks.a]\nkind = \"webhook\"\nurl = \"https://host\"\nheaders = { \"x y\" = \"pl4nt3d-s3cr3t-v4lu3\\n\" }",
    "[sinks.a]\nkind = \"kafka\"\npassword = \"pl4nt3d-s3cr3t-v4lu3\"",
    "[[auth.tokens]]\nname = \"a\"\nroles = [\"read\"]\nhash = \"pl4nt3d-s3cr3t-v4lu3\"",
    "[[auth.tokens]]\nname = \"a\"\nroles = [\"read\"]\ntoken = \"pl4nt3d-s3cr3t-v4lu3 and a space\"",
    "[[auth.tokens]]\nname = \"a\"\nroles = [\"read\"]\ntoken = [\"pl4nt3d-s3cr3t-v4lu3\"]",
];

fn assert_clean(what: &str, shown: &str) {
    assert!(!shown.contains(PLANTED), "{what} shows a secret:\n{shown}");
}

#[test]
fn nothing_that_is_used_shows_a_secret() {
    let folder = Folder::new();
    let secret = folder.write("secret", "pl4nt3d-s3cr3t-v4lu3-from-a-file\n");
    let environment = [
        ("DULY__SINKS__MAIL__KIND", "webhook"),
        ("DULY__SINKS__MAIL__URL", "https://mail.example/pl4nt3d-s3cr3t-v4lu3"),
        ("DULY__SINKS__MAIL__SECRET_FILE", secret.to_str().unwrap()),
        ("DULY__SINKS__MAIL__PARALLEL", "7"),
        ("SOMEBODY_ELSES", "pl4nt3d-s3cr3t-v4lu3"),
    ];
    let sources = folder.sources(GOOD, &environment);
    let loaded = Loaded::read(&sources).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.config.sinks.len(), 2);
    assert!(loaded.config.tokens.caller(PLANTED).is_some(), "it is used all the same");
    assert!(loaded.config.alerts.webhook.as_deref().unwrap().contains(PLANTED));
    assert_clean("Debug of Sources", &format!("{sources:#?}"));
    assert_clean("Debug of Loaded", &format!("{loaded:#?}"));
    let json = serde_json::to_string_pretty(&loaded.settings).unwrap();
    assert_clean("the settings as JSON", &json);
    assert!(
        json.contains("https://shop.example/***") && json.contains("https://hooks.example/***"),
        "{json}"
    );
}

#[test]
fn no_fault_shows_a_secret() {
    let folder = Folder::new();
    for text in FAULTY {
        let problems = Loaded::read(&folder.sources(text, &[])).expect_err(text);
        assert_clean(
            text,
            &format!("{problems}\n{problems:?}\n{}", serde_json::to_string(&problems).unwrap()),
        );
    }
}

#[test]
fn what_comes_from_a_secret_file_is_shown_nowhere_even_if_it_is_wrong() {
    let folder = Folder::new();
    let secret = folder.write("secret", PLANTED);
    for name in [
        "DULY__LISTEN_FILE",
        "DULY__STORE__LEASE_FILE",
        "DULY__STORE__KIND_FILE",
        "DULY__RETRY__ATTEMPTS_FILE",
        "DULY__LEVELS__P0_FILE",
        "DULY__LEVELS_DEFAULT_FILE",
        "DULY__TLS__CERT_FILE",
        "DULY__SINKS__A__KIND_FILE",
        "DULY__SINKS__A__RATE_FILE",
        "DULY__AUTH__TOKENS_FILE",
        "DULY__LIMITS__BODY_FILE",
        "DULY__NO_SUCH_FILE",
    ] {
        let sources = folder.sources("", &[(name, secret.to_str().unwrap())]);
        let problems = Loaded::read(&sources).expect_err(name);
        assert_clean(name, &format!("{problems}\n{}", serde_json::to_string(&problems).unwrap()));
    }
}

#[test]
fn the_command_line_shows_no_secret_and_fails_with_1() {
    let folder = Folder::new();
    let run = |text: &str, arguments: &[&str]| {
        let file = folder.sources(text, &[]).file.unwrap();
        let run = Command::new(env!("CARGO_BIN_EXE_duly"))
            .args(arguments)
            .arg("--config")
            .arg(file)
            .env_clear()
            .env("DULY__CLUSTER__NODE", "from-here")
            .current_dir(folder.0.path())
            .output()
            .unwrap();
        let shown =
            format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert_clean(&format!("{arguments:?}"), &shown);
        (run.status.code(), shown)
    };
    let (code, shown) = run(GOOD, &["config", "check"]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(
        shown.contains("DULY__CLUSTER__NODE") && shown.contains("default") && shown.contains("line 3"),
        "{shown}"
    );
    let (code, shown) = run(GOOD, &["-o", "json", "config", "check"]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("\"ok\": true"), "{shown}");
    for text in FAULTY {
        assert_eq!(run(text, &["config", "check"]).0, Some(1), "{text}");
        let (code, shown) = run(text, &["config", "check", "-o", "json"]);
        assert_eq!(code, Some(1), "{text}");
        let json: serde_json::Value = serde_json::from_str(&shown).unwrap_or_else(|_| panic!("{shown}"));
        assert_eq!(json["ok"], false);
        assert!(!json["problems"].as_array().unwrap().is_empty());
    }
    let (code, shown) = run(FAULTY[0], &["doctor"]);
    assert_eq!(code, Some(1), "{shown}");
}
