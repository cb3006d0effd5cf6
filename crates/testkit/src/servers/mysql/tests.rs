use std::{io::Write, process::Stdio};

use super::*;
use crate::servers::{database::READY_WITHIN, proxy::Proxy, wait_until};

#[test]
fn a_paused_server_answers_when_it_goes_on() {
    if !installed() {
        return;
    }
    let mysql = Mysql::single();
    mysql.pause();
    std::thread::scope(|threads| {
        let asked = threads.spawn(|| mysql.run("SELECT 1"));
        let mut silent = TcpStream::connect(("127.0.0.1", mysql.port())).unwrap();
        silent.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        assert!(silent.read(&mut [0]).is_err(), "the connection is there, and nobody speaks");
        assert!(!asked.is_finished());
        mysql.cont();
        assert_eq!(asked.join().unwrap(), "1");
    });
}

#[test]
fn it_is_durable_and_options_reach_it() {
    if !installed() {
        return;
    }
    let more = vec!["--log-bin".into(), "--sync-binlog=0".into()];
    let mysql = Mysql::with(Options { buffer_pool_mb: 96, more });
    let settings = mysql.run(
        "SELECT @@innodb_flush_log_at_trx_commit, @@innodb_buffer_pool_size DIV 1048576, @@log_bin, @@sync_binlog",
    );
    assert_eq!(settings, "1\t96\t1\t0");
}

#[test]
fn a_commit_may_come_true_long_after_the_client_has_lost_it() {
    if !installed() {
        return;
    }
    let mysql = Mysql::single();
    let database = mysql.database("late");
    mysql.run_in(&database, "CREATE TABLE t (id INT)");
    let proxy = Proxy::to(mysql.port());
    let mut words = Options::client(proxy.port(), &database);
    let mut client =
        words.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = client.stdin.take().unwrap();
    input.write_all(b"BEGIN; INSERT INTO t VALUES (1); SELECT 'inserted';\n").unwrap();
    client.stdout.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
    mysql.pause();
    proxy.cut_on(b"COMMIT", 1);
    input.write_all(b"COMMIT;\n").unwrap();
    drop(input);
    assert!(!client.wait().unwrap().success(), "the client knows no more than that the server is gone");
    mysql.cont();
    wait_until("it is committed", READY_WITHIN, || mysql.run_in(&database, "SELECT id FROM t") == "1");
}
