//! What a store brings along: a library user of a folder compiles no client of a server.

use std::{path::Path, process::Command};

/// Clients of servers, and what speaks HTTP or TLS: each a crate, or the beginning of its name and a dash.
const CLIENTS: [&str; 16] = [
    "async-nats",
    "axum",
    "duly-redis-link",
    "duly-sinks",
    "h2",
    "http",
    "hyper",
    "lapin",
    "rdkafka",
    "redis",
    "reqwest",
    "ring",
    "rustls",
    "sqlx",
    "tokio-rustls",
    "url",
];

/// The clients among all that a build of the library with these features takes.
fn clients(features: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository");
    let mut tree = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    tree.args([
        "tree",
        "--locked",
        "--offline",
        "-p",
        "duly",
        "--no-default-features",
        "--features",
        features,
    ]);
    let told = tree.args(["--prefix", "none", "--format", "{p}"]).current_dir(root).output().expect("cargo");
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let told = String::from_utf8(told.stdout).expect("names of crates");
    let mut names: Vec<&str> = told.lines().filter_map(|line| line.split(' ').next()).collect();
    names.sort_unstable();
    names.dedup();
    assert!(names.contains(&"duly-stores"), "{names:?}");
    let is_client = |name: &&&str| {
        CLIENTS.iter().any(|client| {
            name.strip_prefix(client).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
    };
    names.iter().filter(is_client).map(ToString::to_string).collect()
}

#[test]
fn a_store_in_a_folder_compiles_no_client_of_a_server() {
    assert_eq!(clients("embedded"), [""; 0]);
}

#[test]
fn each_store_on_a_server_brings_its_own_client_alone() {
    let redis = clients("redis");
    assert!(
        redis.contains(&"redis".to_owned()) && !redis.iter().any(|name| name.starts_with("sqlx")),
        "{redis:?}"
    );
    let sql = clients("sql");
    assert!(
        sql.iter().any(|name| name == "sqlx") && !sql.iter().any(|name| name.starts_with("redis")),
        "{sql:?}"
    );
}
