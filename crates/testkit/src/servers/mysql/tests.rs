use std::{io::Write, process::Stdio};

use super::*;
use crate::servers::proxy::Proxy;

#[test]
fn what_is_committed_and_the_port_stay_over_a_kill() {
    if !installed() {
        return;
    }
    let mysql = Mysql::single();
    let (url, pid) = (mysql.database("kept"), mysql.pid());
    mysql.run_in(&url, "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (7)");
    mysql.restart();
    assert_eq!(mysql.run_in("kept", "SELECT id, 'x' FROM t"), "7\tx");
    assert!(url.starts_with(&mysql.url()));
    assert_ne!(mysql.pid(), pid);
    mysql.kill();
    assert!(mysql.try_run_in(&url, "SELECT 1").is_err());
}

#[test]
fn databases_of_the_shared_server_are_apart() {
    if !installed() {
        return;
    }
    let (one, two) = (shared().fresh_database(), shared().fresh_database());
    assert_ne!(one, two);
    shared().run_in(&one, "CREATE TABLE t (id INT)");
    assert!(shared().try_run_in(&two, "SELECT * FROM t").unwrap_err().contains("doesn't exist"));
    assert_eq!(shared().url(), std::thread::spawn(|| shared().url()).join().unwrap());
}

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
fn a_panic_kills_the_server() {
    if !installed() {
        return;
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let mysql = Mysql::single();
        sender.send((mysql.port(), mysql.folder().to_owned())).unwrap();
        panic!("on purpose");
    });
    assert!(test.join().is_err());
    let (port, folder) = receiver.recv().unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!folder.exists());
}

#[test]
fn a_commit_is_kept_if_its_answer_is_lost_and_not_if_it_never_came() {
    if !installed() {
        return;
    }
    let database = shared().fresh_database();
    shared().run_in(&database, "CREATE TABLE t (id INT)");
    let proxy = Proxy::to(shared().port());
    let insert =
        |id: u32| ask(proxy.port(), &database, &format!("BEGIN; INSERT INTO t VALUES ({id}); COMMIT;"));
    insert(1).unwrap();
    proxy.cut_after(b"COMMIT", 1);
    assert!(insert(2).unwrap_err().contains("Lost connection"));
    assert_eq!(shared().run_in(&database, "SELECT id FROM t ORDER BY id"), "1\n2");
    proxy.cut_before(b"COMMIT", 1);
    assert!(insert(3).unwrap_err().contains("Lost connection"));
    insert(4).unwrap();
    assert_eq!(shared().run_in(&database, "SELECT id FROM t ORDER BY id"), "1\n2\n4");
    assert_eq!(proxy.needles_met(), 2);
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
    let mut words = client(proxy.port(), &database);
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
