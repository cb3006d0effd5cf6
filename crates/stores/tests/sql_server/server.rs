//! A database of a test's own, in either kind of server.

use std::{ops::Deref, time::Duration};

use duly_stores::{SqlStore, sql::Options};
use testkit::servers::{mysql::Mysql, postgres::Postgres, proxy::Proxy};

use crate::bed::now;

/// What a server does of itself, it does within this.
const SOON: Duration = Duration::from_secs(30);

/// Asks again and again until the answer is yes. What else the test has begun goes on meanwhile.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let asking = async {
        while !is_so() {
            // Between two questions to a server that cannot call us.
            let _ = tokio::time::timeout(Duration::from_millis(5), std::future::pending::<()>()).await;
        }
    };
    let asked = tokio::time::timeout(SOON, asking).await;
    assert!(asked.is_ok(), "not within {SOON:?}: {what}");
}

/// Tests that hold whichever database it is: each is two, `…::mysql` and `…::postgres`.
///
/// `shared` is the server of all tests, `own` one that may be stopped and set otherwise.
macro_rules! both {
    ($(fn $name:ident($bed:ident: $scope:ident) $body:block)*) => {$(
        mod $name {
            use super::*;

            async fn case($bed: $crate::server::Bed) $body

            #[test]
            fn mysql() {
                if testkit::servers::mysql::installed() {
                    testkit::block_on(case($crate::server::Bed::new($crate::server::mysql::$scope())));
                }
            }

            #[test]
            fn postgres() {
                if testkit::servers::postgres::installed() {
                    testkit::block_on(case($crate::server::Bed::new($crate::server::postgres::$scope())));
                }
            }
        }
    )*};
}
pub(crate) use both;

/// A server that all tests share, or that one test owns.
pub(crate) enum Handle<T: 'static> {
    Shared(&'static T),
    Own(Box<T>),
}

impl<T> Deref for Handle<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Shared(server) => server,
            Self::Own(server) => server,
        }
    }
}

pub(crate) enum Server {
    Mysql(Handle<Mysql>),
    Postgres(Handle<Postgres>),
}

macro_rules! ask {
    ($self:expr, $server:ident => $what:expr) => {
        match $self {
            Server::Mysql($server) => $what,
            Server::Postgres($server) => $what,
        }
    };
}

/// A database of one test, empty at first.
pub(crate) struct Bed {
    server: Server,
    url: String,
}

impl Bed {
    pub(crate) fn new(server: Server) -> Self {
        let url = ask!(&server, server => server.fresh_database());
        Self { server, url }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn is_mysql(&self) -> bool {
        matches!(self.server, Server::Mysql(_))
    }

    /// The one or the other, as the database is.
    pub(crate) fn words<'w>(&self, mysql: &'w str, postgres: &'w str) -> &'w str {
        if self.is_mysql() { mysql } else { postgres }
    }

    /// Runs statements of the test itself; returns the rows, one per line with tabs between the columns.
    pub(crate) fn sql(&self, statements: &str) -> String {
        self.try_sql(statements).unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    /// The same; returns what the server said if it refused one.
    pub(crate) fn try_sql(&self, statements: &str) -> Result<String, String> {
        ask!(&self.server, server => server.try_run_in(&self.url, statements))
    }

    pub(crate) fn port(&self) -> u16 {
        ask!(&self.server, server => server.port())
    }

    /// What the server wrote to its log.
    pub(crate) fn log(&self) -> String {
        ask!(&self.server, server => server.log())
    }

    pub(crate) fn kill(&self) {
        ask!(&self.server, server => server.kill());
    }

    pub(crate) fn start(&self) {
        ask!(&self.server, server => server.start());
    }

    pub(crate) fn pause(&self) {
        ask!(&self.server, server => server.pause());
    }

    pub(crate) fn cont(&self) {
        ask!(&self.server, server => server.cont());
    }

    /// Waits until so many wait for locks in this server, which is the test's own.
    pub(crate) async fn are_waiting(&self, count: usize) {
        let waiting = self.words(
            "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'innodb_row_lock_current_waits'",
            "SELECT COUNT(*) FROM pg_locks WHERE NOT granted",
        );
        until("they wait for locks", || self.sql(waiting) == count.to_string()).await;
    }

    /// Waits until no transaction is open in this server, which is the test's own.
    pub(crate) async fn nobody_is_at_work(&self) {
        let open = self.words(
            "SELECT COUNT(*) FROM information_schema.innodb_trx",
            "SELECT COUNT(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'",
        );
        until("no transaction is open", || self.sql(open) == "0").await;
    }

    /// A store with connections straight to the server.
    pub(crate) async fn store(&self, instance: u64) -> SqlStore {
        self.store_with(Options { node: format!("node-{instance}"), ..Options::new(instance) }).await
    }

    pub(crate) async fn store_with(&self, options: Options) -> SqlStore {
        SqlStore::open(&self.url, options, now(0)).await.unwrap()
    }

    /// A wire to the server.
    pub(crate) fn wire(&self) -> Proxy {
        Proxy::to(self.port())
    }

    /// A store with connections over a wire.
    pub(crate) async fn store_over(&self, wire: &Proxy, options: Options) -> SqlStore {
        let url = self.url.replace(&format!(":{}/", self.port()), &format!(":{}/", wire.port()));
        SqlStore::open(&url, options, now(0)).await.unwrap()
    }
}

pub(crate) mod mysql {
    use super::{Handle, Mysql, Server};

    pub(crate) fn shared() -> Server {
        Server::Mysql(Handle::Shared(testkit::servers::mysql::shared()))
    }

    pub(crate) fn own() -> Server {
        Server::Mysql(Handle::Own(Box::new(Mysql::single())))
    }
}

pub(crate) mod postgres {
    use super::{Handle, Postgres, Server};

    pub(crate) fn shared() -> Server {
        Server::Postgres(Handle::Shared(testkit::servers::postgres::shared()))
    }

    pub(crate) fn own() -> Server {
        Server::Postgres(Handle::Own(Box::new(Postgres::single())))
    }
}
