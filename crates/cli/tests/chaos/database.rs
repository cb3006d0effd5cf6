//! A database of the case's own, of either make.

use testkit::servers::{
    mysql::{self, Mysql},
    postgres::{self, Postgres},
    redis,
};

/// The databases that a store may be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Make {
    Mysql,
    Postgres,
}

#[derive(Debug)]
enum Server {
    Mysql(Mysql),
    Postgres(Postgres),
}

/// A server of one of them, and an empty database there.
#[derive(Debug)]
pub(crate) struct Database {
    server: Server,
    name: String,
}

impl Make {
    pub(crate) fn installed(self) -> bool {
        redis::installed()
            && match self {
                Self::Mysql => mysql::installed(),
                Self::Postgres => postgres::installed(),
            }
    }

    pub(crate) fn start(self) -> Database {
        let (server, url) = match self {
            Self::Mysql => {
                let server = Mysql::single();
                let url = server.fresh_database();
                (Server::Mysql(server), url)
            }
            Self::Postgres => {
                let server = Postgres::single();
                let url = server.fresh_database();
                (Server::Postgres(server), url)
            }
        };
        Database { server, name: url.rsplit('/').next().unwrap().to_owned() }
    }

    /// One of these, by the make.
    pub(crate) fn either<T>(self, mysql: T, postgres: T) -> T {
        match self {
            Self::Mysql => mysql,
            Self::Postgres => postgres,
        }
    }
}

macro_rules! of_both {
    ($(#[$doc:meta])* $name:ident ( $($word:ident : $type:ty),* ) $(-> $answer:ty)?) => {
        $(#[$doc])*
        pub(crate) fn $name(&self, $($word: $type),*) $(-> $answer)? {
            match &self.server {
                Server::Mysql(server) => server.$name($($word),*),
                Server::Postgres(server) => server.$name($($word),*),
            }
        }
    };
}

impl Database {
    of_both!(port() -> u16);
    of_both!(
        /// kill -9.
        kill()
    );
    of_both!(start());
    of_both!(
        /// SIGSTOP.
        pause()
    );
    of_both!(
        /// SIGCONT.
        cont()
    );

    pub(crate) fn make(&self) -> Make {
        match self.server {
            Server::Mysql(_) => Make::Mysql,
            Server::Postgres(_) => Make::Postgres,
        }
    }

    /// Statements of the test itself; it blocks.
    pub(crate) fn ask(&self, statements: &str) -> Result<String, String> {
        match &self.server {
            Server::Mysql(server) => server.try_run_in(&self.name, statements),
            Server::Postgres(server) => server.try_run_in(&self.name, statements),
        }
    }

    /// The same, when nothing is in its way.
    pub(crate) fn run(&self, statements: &str) -> String {
        self.ask(statements).unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    /// The same, beside the test.
    pub(crate) async fn ask_beside(
        self: &std::sync::Arc<Self>,
        statements: String,
    ) -> Result<String, String> {
        let own = self.clone();
        tokio::task::spawn_blocking(move || own.ask(&statements)).await.unwrap()
    }

    /// Where it is, by way of this port.
    pub(crate) fn url(&self, port: u16) -> String {
        let name = &self.name;
        self.make().either(
            format!("mysql://root@127.0.0.1:{port}/{name}"),
            format!("postgres://duly@127.0.0.1:{port}/{name}"),
        )
    }

    /// A store in it, in the words of `[store]`.
    pub(crate) fn store(&self, port: u16, connections: u32) -> String {
        let kind = self.make().either("mysql", "postgres");
        format!("kind = \"{kind}\"\n{kind} = \"{}\"\nconnections = {connections}", self.url(port))
    }

    /// How many deadlocks it has broken.
    pub(crate) fn deadlocks(&self) -> u64 {
        let count = self.run(self.make().either(
            "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'innodb_deadlocks'",
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
        ));
        count.parse().unwrap_or_else(|_| panic!("{count:?}"))
    }
}
