//! What a store brings along: a library user of a folder compiles no client of a server.

use std::{collections::BTreeSet, path::Path, process::Command};

/// The crates of a library user of a folder, our own three among them: thirty-six, and a few that may come.
const CRATES_MAX: usize = 40;

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

/// The crates that a build of the library with these features takes, each as its name and version.
fn crates(features: &str) -> BTreeSet<(String, String)> {
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
    tree.args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    let printed = tree.current_dir(root).output().expect("cargo");
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let printed = String::from_utf8(printed.stdout).expect("names of crates");
    let words = printed.lines().map(|line| line.split(' ').map(ToOwned::to_owned));
    let crates: BTreeSet<_> = words.filter_map(|mut words| Some((words.next()?, words.next()?))).collect();
    assert!(crates.iter().any(|(name, _)| name == "duly-stores"), "{crates:?}");
    crates
}

/// The clients among them.
fn clients(features: &str) -> Vec<String> {
    let is_client = |name: &String| {
        CLIENTS.iter().any(|client| {
            name.strip_prefix(client).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
    };
    crates(features).into_iter().map(|(name, _)| name).filter(is_client).collect()
}

#[test]
fn a_store_in_a_folder_compiles_no_client_of_a_server() {
    assert_eq!(clients("embedded"), [""; 0]);
}

/// The build from nothing takes 49 seconds of CPU. A second version of `syn` alone took another 14.
#[test]
fn a_store_in_a_folder_takes_few_crates_and_none_of_them_twice() {
    let crates = crates("embedded");
    let names: BTreeSet<_> = crates.iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), crates.len(), "a crate in two versions: {crates:?}");
    assert!(crates.len() <= CRATES_MAX, "{} crates: {names:?}", crates.len());
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
