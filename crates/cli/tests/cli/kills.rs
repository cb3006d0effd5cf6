//! kill -9 under load, ten times, with a ledger outside the process.

use std::{
    collections::{HashMap, HashSet},
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

const KILLS: usize = 10;
/// On a machine that is too slow for all of them, so many must fit into the load.
const KILLS_MIN: usize = 2;
/// The next kill comes when so many more were accepted.
const ACCEPTED_BETWEEN: usize = 300;

fn serve(addr: SocketAddr, data: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_duly"));
    command.args(["serve", "--listen", &addr.to_string(), "--data"]).arg(data);
    let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while std::net::TcpStream::connect_timeout(&addr, Duration::from_secs(1)).is_err() {
        std::thread::yield_now();
    }
    server
}

/// What the bench wrote down: accepted ids, and how often each id was received, never early.
fn read(ledger: &Path) -> (HashSet<String>, HashMap<String, usize>) {
    let (mut accepted, mut received) = (HashSet::new(), HashMap::new());
    let text = std::fs::read_to_string(ledger).unwrap_or_default();
    // The last line may be half written while the bench runs.
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["accepted", id] => {
                accepted.insert(id.to_owned());
            }
            ["received", id, due, at] => {
                assert!(at.parse::<u64>().unwrap() >= due.parse().unwrap(), "early: {line}");
                *received.entry(id.to_owned()).or_default() += 1;
            }
            ["sent", _] => {}
            _ => panic!("a line of the ledger: {line:?}"),
        }
    }
    (accepted, received)
}

#[test]
fn kill_9_of_the_server_under_bench_load_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (data, ledger) = (folder.path().join("data"), folder.path().join("ledger"));
    let addr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{addr}");
    let mut server = serve(addr, &data);
    let mut bench = Command::new(env!("CARGO_BIN_EXE_duly"));
    bench.args(["bench", "--url", &url, "--keep-going", "--quiet", "-o", "json", "--connections", "8"]);
    bench
        .args([
            "--rate",
            "1000",
            "--delay",
            "5ms..1s",
            "--duration",
            "20s",
            "--lease",
            "3s",
            "--drain",
            "60s",
            "--ledger",
        ])
        .arg(&ledger);
    let mut bench = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut kills = 0;
    'kills: while kills < KILLS {
        kills += 1;
        while read(&ledger).0.len() < kills * ACCEPTED_BETWEEN {
            if bench.try_wait().unwrap().is_some() {
                kills -= 1;
                break 'kills;
            }
            // The load needs the processor more than this look does.
            std::thread::yield_now();
        }
        server.kill().unwrap();
        server.wait().unwrap();
        server = serve(addr, &data);
    }
    let output = bench.wait_with_output().unwrap();
    let (accepted, received) = read(&ledger);
    let lost: Vec<_> = accepted.iter().filter(|id| !received.contains_key(*id)).collect();
    let twice: usize = received.values().map(|times| times - 1).sum();
    println!("{} accepted, {} lost, {twice} received again after {kills} kills", accepted.len(), lost.len());
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(kills >= KILLS_MIN, "{kills} kills fit into the load");
    assert!(lost.is_empty(), "accepted and never received: {lost:?}");
}
