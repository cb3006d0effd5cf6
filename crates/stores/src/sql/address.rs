//! Where a database is.

use std::{fmt, str::FromStr};

use sqlx::{ConnectOptions, mysql::MySqlConnectOptions, postgres::PgConnectOptions};

/// Prepared statements that each connection caches.
const STATEMENTS_MAX: usize = 100;
/// How PostgreSQL is to treat us: what others commit meanwhile is seen, and nobody waits for a lock for long.
const SETTINGS: [(&str, &str); 2] =
    [("default_transaction_isolation", "read committed"), ("lock_timeout", "5s")];

/// The makes of databases that Duly speaks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// MySQL or MariaDB.
    Mysql,
    /// PostgreSQL.
    Postgres,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mysql => "MySQL",
            Self::Postgres => "PostgreSQL",
        })
    }
}

/// Which database this is an address of, if it is one that [`SqlStore::join`](super::SqlStore::join) understands; if not, why. The
/// answer does not hold the address, which may hold a password.
pub fn check_address(url: &str) -> Result<Server, String> {
    Ok(match Address::parse(url)? {
        Address::Mysql(_) => Server::Mysql,
        Address::Postgres(_) => Server::Postgres,
    })
}

/// An address that was understood.
#[derive(Clone)]
pub(super) enum Address {
    Mysql(MySqlConnectOptions),
    Postgres(PgConnectOptions),
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let refused = |error: sqlx::Error| match error {
            sqlx::Error::Configuration(why) => format!("this is no address of a database: {why}"),
            other => format!("this is no address of a database: {other}"),
        };
        let (address, database) = match url.split_once("://").map_or("", |(scheme, _)| scheme) {
            "mysql" | "mariadb" => {
                let to = MySqlConnectOptions::from_str(url).map_err(refused)?;
                let database = to.get_database().map(str::to_owned);
                let to = to.statement_cache_capacity(STATEMENTS_MAX).disable_statement_logging();
                (Self::Mysql(to), database)
            }
            "postgres" | "postgresql" => {
                let to = PgConnectOptions::from_str(url).map_err(refused)?;
                let database = to.get_database().map(str::to_owned);
                let to = to.statement_cache_capacity(STATEMENTS_MAX).disable_statement_logging();
                (Self::Postgres(to.application_name("duly").options(SETTINGS)), database)
            }
            _ => {
                return Err("an address of a database begins with mysql:// or postgres://, \
                    such as mysql://user@host:3306/database or postgres://user@host:5432/database"
                    .into());
            }
        };
        if database.is_none_or(|name| name.is_empty()) {
            return Err("no database is named: write its name behind the host, as in host/duly".into());
        }
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_databases_are_known() {
        for url in ["mysql://root@127.0.0.1:3306/duly", "mariadb://h/d?ssl-mode=REQUIRED"] {
            assert_eq!(check_address(url), Ok(Server::Mysql), "{url}");
        }
        for url in ["postgres://duly@127.0.0.1/duly", "postgresql:///duly?host=/run/postgresql"] {
            assert_eq!(check_address(url), Ok(Server::Postgres), "{url}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_being_shown() {
        for (url, words) in [
            ("http://u:planted@h/d", "mysql://"),
            ("planted", "mysql://"),
            ("mysql://u:planted@h", "no database is named"),
            ("mysql://u:planted@h/", "no database is named"),
            ("postgres://u:planted@h:no/d", "no address of a database"),
            ("mysql://u:planted?x@h/d", "no address of a database"),
            ("mysql://u:planted@h/d?ssl-mode=maybe", "no address of a database"),
        ] {
            let error = check_address(url).unwrap_err();
            assert!(error.contains(words) && !error.contains("planted"), "{url}: {error}");
        }
    }
}
