use std::net::TcpStream;

use super::*;
use crate::servers::{mysql, postgres, proxy::Proxy};

/// One kind of server, and the words of its errors.
struct DatabaseKind<E: Engine + 'static> {
    installed: fn() -> bool,
    shared: fn() -> &'static Database<E>,
    no_such_table: &'static str,
    connection_lost: &'static str,
}

const MYSQL: DatabaseKind<mysql::Options> = DatabaseKind {
    installed: mysql::installed,
    shared: mysql::shared,
    no_such_table: "doesn't exist",
    connection_lost: "Lost connection",
};

const POSTGRES: DatabaseKind<postgres::Options> = DatabaseKind {
    installed: postgres::installed,
    shared: postgres::shared,
    no_such_table: "does not exist",
    connection_lost: "closed the connection",
};

/// The same case on every kind of server.
macro_rules! on_each {
    ($($case:ident,)*) => {
        on_each!(on_mysql: MYSQL: $($case,)*);
        on_each!(on_postgres: POSTGRES: $($case,)*);
    };
    ($module:ident: $kind:ident: $($case:ident,)*) => {
        mod $module {
            $(
                #[test]
                fn $case() {
                    if (super::$kind.installed)() {
                        super::$case(super::$kind);
                    }
                }
            )*
        }
    };
}

on_each! {
    what_is_committed_and_the_port_stay_over_a_kill,
    databases_of_the_shared_server_are_apart,
    a_panic_kills_the_server,
    a_commit_is_kept_if_its_answer_is_lost_and_not_if_it_never_came,
}

fn what_is_committed_and_the_port_stay_over_a_kill<E: Engine>(_: DatabaseKind<E>) {
    let server = Database::<E>::single();
    let (url, port, pid) = (server.database("kept"), server.port(), server.pid());
    server.run_in(&url, "CREATE TABLE t (id INT PRIMARY KEY); INSERT INTO t VALUES (7)");
    server.restart();
    assert_eq!(server.run_in("kept", "SELECT id, 'x' FROM t"), "7\tx");
    assert_eq!(server.port(), port);
    assert_ne!(server.pid(), pid);
    server.kill();
    assert!(server.try_run_in(&url, "SELECT 1").is_err());
}

fn databases_of_the_shared_server_are_apart<E: Engine>(kind: DatabaseKind<E>) {
    let shared = kind.shared;
    let (one, two) = (shared().fresh_database(), shared().fresh_database());
    assert_ne!(one, two);
    shared().run_in(&one, "CREATE TABLE t (id INT)");
    assert!(shared().try_run_in(&two, "SELECT * FROM t").unwrap_err().contains(kind.no_such_table));
    assert_eq!(shared().url(), std::thread::spawn(move || shared().url()).join().unwrap());
}

fn a_panic_kills_the_server<E: Engine>(_: DatabaseKind<E>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let server = Database::<E>::single();
        sender.send((server.port(), server.folder().to_owned())).unwrap();
        panic!("on purpose");
    });
    assert!(test.join().is_err());
    let (port, folder) = receiver.recv().unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!folder.exists());
}

fn a_commit_is_kept_if_its_answer_is_lost_and_not_if_it_never_came<E: Engine>(kind: DatabaseKind<E>) {
    let server = (kind.shared)();
    let database = server.fresh_database();
    server.run_in(&database, "CREATE TABLE t (id INT)");
    let proxy = Proxy::to(server.port());
    let insert = |id: u32| {
        let statements = format!("BEGIN; INSERT INTO t VALUES ({id}); COMMIT;");
        client::ask(&mut E::client(proxy.port(), &database), &statements)
    };
    insert(1).unwrap();
    proxy.cut_after(b"COMMIT", 1);
    assert!(insert(2).unwrap_err().contains(kind.connection_lost));
    assert_eq!(server.run_in(&database, "SELECT id FROM t ORDER BY id"), "1\n2");
    proxy.cut_before(b"COMMIT", 1);
    assert!(insert(3).unwrap_err().contains(kind.connection_lost));
    insert(4).unwrap();
    assert_eq!(server.run_in(&database, "SELECT id FROM t ORDER BY id"), "1\n2\n4");
    assert_eq!(proxy.needles_met(), 2);
}
