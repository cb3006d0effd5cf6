use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
    sync::mpsc,
    time::Duration,
};

use super::*;
use crate::servers::database::READY_WITHIN;

#[test]
fn a_paused_server_answers_neither_old_nor_new_connections_until_it_goes_on() {
    if !installed() {
        return;
    }
    let postgres = Postgres::single();
    let mut old = Options::client(postgres.port(), "postgres")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, output) = (old.stdin.take().unwrap(), old.stdout.take().unwrap());
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    input.write_all(b"SELECT 1;\n").unwrap();
    assert_eq!(receiver.recv_timeout(READY_WITHIN).unwrap(), "1");

    postgres.pause();
    std::thread::scope(|threads| {
        let new = threads.spawn(|| postgres.run("SELECT 3"));
        input.write_all(b"SELECT 2;\n").unwrap();
        assert!(receiver.recv_timeout(Duration::from_millis(200)).is_err(), "its process is stopped, too");
        assert!(!new.is_finished());
        postgres.cont();
        assert_eq!(receiver.recv_timeout(READY_WITHIN).unwrap(), "2");
        assert_eq!(new.join().unwrap(), "3");
    });
    drop(input);
    old.wait().unwrap();
}

#[test]
fn a_paused_server_can_be_killed_and_leaves_nothing() {
    if !installed() {
        return;
    }
    let postgres = Postgres::single();
    let receiver = fs::read_to_string(postgres.folder().join("data/postmaster.pid")).unwrap();
    let number = receiver.lines().nth(6).unwrap().split_whitespace().nth(1).unwrap();
    let memory = || {
        let all = fs::read_to_string("/proc/sysvipc/shm").unwrap();
        all.lines().any(|line| line.split_whitespace().nth(1) == Some(number))
    };
    assert!(memory());
    postgres.pause();
    let (pid, folder) = (postgres.pid().unwrap(), postgres.folder().to_owned());
    drop(postgres);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(!folder.exists());
    assert!(!memory());
}

#[test]
fn it_is_durable_and_options_reach_it() {
    if !installed() {
        return;
    }
    let more = vec!["synchronous_commit=off".into()];
    let postgres = Postgres::with(Options { shared_buffers_mb: 16, more });
    let settings =
        postgres.run("SHOW fsync; SHOW shared_buffers; SHOW synchronous_commit; SHOW server_encoding");
    assert_eq!(settings.lines().collect::<Vec<_>>(), ["on", "16MB", "off", "UTF8"]);
    assert_eq!(shared().run("SHOW synchronous_commit"), "on");
}
