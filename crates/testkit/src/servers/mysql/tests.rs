use super::*;

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
    let (tell, told) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let mysql = Mysql::single();
        tell.send((mysql.port(), mysql.folder().to_owned())).unwrap();
        panic!("on purpose");
    });
    assert!(test.join().is_err());
    let (port, folder) = told.recv().unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!folder.exists());
}
