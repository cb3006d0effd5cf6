//! Connections to the database, and statements in the words of whichever it is.

use std::time::Duration;

use sqlx::{
    Arguments, AssertSqlSafe, MySql, MySqlPool, PgPool, Postgres, Row as _,
    mysql::{MySqlArguments, MySqlRow},
    pool::PoolConnection,
    postgres::{PgArguments, PgRow},
};

use super::{call::Name, fault::Fault, pulse::Pulse};

/// A connection that does not answer when it is given back is closed after this.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(5);

/// The databases that are spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Mysql,
    Postgres,
}

/// The connections of one store.
#[derive(Debug)]
pub(crate) struct Link {
    pools: Pools,
    pulse: Pulse,
}

#[derive(Debug)]
enum Pools {
    Mysql(MySqlPool),
    Postgres(PgPool),
}

impl Link {
    pub(super) fn mysql(pool: MySqlPool) -> Self {
        Self { pools: Pools::Mysql(pool), pulse: Pulse::default() }
    }

    pub(super) fn postgres(pool: PgPool) -> Self {
        Self { pools: Pools::Postgres(pool), pulse: Pulse::default() }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        match self.pools {
            Pools::Mysql(_) => Dialect::Mysql,
            Pools::Postgres(_) => Dialect::Postgres,
        }
    }

    /// A connection for one piece of work. If nobody is there to connect to, that is told soon.
    pub(crate) async fn session(&self) -> Result<Session, Fault> {
        Ok(Session::on(match &self.pools {
            Pools::Mysql(pool) => Connection::Mysql(self.pulse.acquire(pool).await?),
            Pools::Postgres(pool) => Connection::Postgres(self.pulse.acquire(pool).await?),
        }))
    }

    /// The same, and waits for a server that may come back as long as anybody waits for a connection.
    pub(crate) async fn session_at_last(&self) -> Result<Session, Fault> {
        Ok(Session::on(match &self.pools {
            Pools::Mysql(pool) => Connection::Mysql(pool.acquire().await?),
            Pools::Postgres(pool) => Connection::Postgres(pool.acquire().await?),
        }))
    }

    /// Closes all connections.
    pub(crate) async fn close(&self) {
        match &self.pools {
            Pools::Mysql(pool) => pool.close().await,
            Pools::Postgres(pool) => pool.close().await,
        }
    }
}

#[derive(Debug)]
enum Connection {
    Mysql(PoolConnection<MySql>),
    Postgres(PoolConnection<Postgres>),
}

/// One connection while it is worked with. If the work is given up in the middle, the connection is closed, and so the
/// server takes back what was not committed.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Option<Connection>,
    /// A transaction, or a statement whose answer has not come.
    is_open: bool,
    /// What the index is to be told once it is committed.
    pub(super) news: Vec<super::Entry>,
    /// Whose transaction it is, and how often it was tried.
    call: Option<(Name, u32)>,
}

impl Session {
    fn on(connection: Connection) -> Self {
        Self { connection: Some(connection), is_open: false, call: None, news: Vec::new() }
    }

    /// Begins a transaction of a call that is tried for the `tries`th time.
    pub(crate) async fn begin(&mut self, call: Name, tries: u32) -> Result<(), Fault> {
        self.plain("BEGIN").await?;
        (self.is_open, self.call) = (true, Some((call, tries)));
        Ok(())
    }

    /// Whose transaction this is, and how often it was tried.
    pub(super) fn call(&self) -> Option<(Name, u32)> {
        self.call
    }

    /// Takes back what was done since [`begin`](Self::begin), lets go of every lock, and begins again.
    pub(crate) async fn start_over(&mut self) -> Result<(), Fault> {
        self.news.clear();
        self.plain("ROLLBACK AND CHAIN").await
    }

    /// If this fails for another reason than a refusal of the server, what was done may stand or not.
    pub(crate) async fn commit(mut self) -> Result<(), Fault> {
        self.plain("COMMIT").await?;
        self.is_open = false;
        Ok(())
    }

    /// The work failed. If the connection is good, what was done is taken back and the connection kept.
    pub(crate) async fn give_up(self, fault: &Fault) {
        if !fault.is_lost() {
            self.end().await;
        }
    }

    /// Ends a transaction that is not to be committed. If the server does not answer, it ends with the connection.
    pub(crate) async fn end(mut self) {
        if self.plain("ROLLBACK").await.is_ok() {
            self.is_open = false;
        }
    }

    /// Statements that take no values.
    pub(crate) async fn plain(&mut self, text: &'static str) -> Result<(), Fault> {
        let was_open = std::mem::replace(&mut self.is_open, true);
        match self.connection()? {
            Connection::Mysql(connection) => {
                sqlx::raw_sql(text).execute(&mut **connection).await.map(|_| ())?
            }
            Connection::Postgres(connection) => {
                sqlx::raw_sql(text).execute(&mut **connection).await.map(|_| ())?;
            }
        }
        self.is_open = was_open;
        Ok(())
    }

    /// Runs a statement. Gives how many rows it touched.
    pub(crate) async fn run(&mut self, statement: Statement) -> Result<u64, Fault> {
        let was_open = std::mem::replace(&mut self.is_open, true);
        let text = AssertSqlSafe(statement.text);
        let touched = match (self.connection()?, statement.values) {
            (Connection::Mysql(connection), Values::Mysql(values)) => {
                sqlx::query_with(text, values).execute(&mut **connection).await?.rows_affected()
            }
            (Connection::Postgres(connection), Values::Postgres(values)) => {
                sqlx::query_with(text, values).execute(&mut **connection).await?.rows_affected()
            }
            _ => return Err(Fault::garbled("a statement for another database")),
        };
        self.is_open = was_open;
        Ok(touched)
    }

    /// Runs a statement. Gives the rows that it answers with.
    pub(crate) async fn rows(&mut self, statement: Statement) -> Result<Vec<Answer>, Fault> {
        let was_open = std::mem::replace(&mut self.is_open, true);
        let text = AssertSqlSafe(statement.text);
        let rows = match (self.connection()?, statement.values) {
            (Connection::Mysql(connection), Values::Mysql(values)) => {
                let rows = sqlx::query_with(text, values).fetch_all(&mut **connection).await?;
                rows.into_iter().map(Answer::Mysql).collect()
            }
            (Connection::Postgres(connection), Values::Postgres(values)) => {
                let rows = sqlx::query_with(text, values).fetch_all(&mut **connection).await?;
                rows.into_iter().map(Answer::Postgres).collect()
            }
            _ => return Err(Fault::garbled("a statement for another database")),
        };
        self.is_open = was_open;
        Ok(rows)
    }

    fn connection(&mut self) -> Result<&mut Connection, Fault> {
        self.connection.as_mut().ok_or_else(|| Fault::garbled("a connection that was given back"))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        match self.connection.take() {
            // Detached and dropped: the socket is closed at once, whatever the server is doing.
            Some(Connection::Mysql(connection)) if self.is_open => drop(connection.detach()),
            Some(Connection::Postgres(connection)) if self.is_open => drop(connection.detach()),
            Some(Connection::Mysql(connection)) => give_back(connection),
            Some(Connection::Postgres(connection)) => give_back(connection),
            None => {}
        }
    }
}

/// The pool asks a connection whether it is still good when it comes back, and would wait for the answer as long as it
/// takes: a network that is silent would use up all connections there may be.
fn give_back<DB: sqlx::Database>(mut connection: PoolConnection<DB>) {
    let asked = connection.return_to_pool();
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move { tokio::time::timeout(GIVEN_BACK_WITHIN, asked).await });
    }
}

enum Values {
    Mysql(MySqlArguments),
    Postgres(PgArguments),
}

/// A statement being written, with its values.
pub(crate) struct Statement {
    dialect: Dialect,
    text: String,
    values: Values,
    count: usize,
}

impl Statement {
    pub(crate) fn new(dialect: Dialect, text: &str) -> Self {
        let values = match dialect {
            Dialect::Mysql => Values::Mysql(MySqlArguments::default()),
            Dialect::Postgres => Values::Postgres(PgArguments::default()),
        };
        Self { dialect, text: text.to_owned(), values, count: 0 }
    }

    /// More text, in the words of both databases. Never a value of somebody's.
    pub(crate) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// The same thing in the words of each.
    pub(crate) fn push_as(&mut self, mysql: &str, postgres: &str) -> &mut Self {
        self.push(match self.dialect {
            Dialect::Mysql => mysql,
            Dialect::Postgres => postgres,
        })
    }

    /// A value.
    pub(crate) fn bind<'v>(&mut self, value: impl Into<Value<'v>>) -> &mut Self {
        self.count += 1;
        match self.dialect {
            Dialect::Mysql => self.text.push('?'),
            Dialect::Postgres => self.text.push_str(&format!("${}", self.count)),
        }
        let value = value.into();
        // These kinds of values can always be written; a list that were one short would be refused by the server.
        let _ = match &mut self.values {
            Values::Mysql(values) => match value {
                Value::Int(value) => values.add(value),
                Value::Text(value) => values.add(value),
                Value::Bytes(value) => values.add(value),
            },
            Values::Postgres(values) => match value {
                Value::Int(value) => values.add(value),
                Value::Text(value) => values.add(value),
                Value::Bytes(value) => values.add(value),
            },
        };
        self
    }

    /// Values with commas between them.
    pub(crate) fn bind_all<'v>(
        &mut self,
        values: impl IntoIterator<Item = impl Into<Value<'v>>>,
    ) -> &mut Self {
        for (place, value) in values.into_iter().enumerate() {
            if place > 0 {
                self.push(", ");
            }
            self.bind(value);
        }
        self
    }
}

/// A value of a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'v> {
    Int(Option<i64>),
    Text(Option<&'v str>),
    Bytes(Option<&'v [u8]>),
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

impl<'v> From<&'v str> for Value<'v> {
    fn from(value: &'v str) -> Self {
        Self::Text(Some(value))
    }
}

impl<'v> From<Option<&'v str>> for Value<'v> {
    fn from(value: Option<&'v str>) -> Self {
        Self::Text(value)
    }
}

impl<'v> From<&'v [u8]> for Value<'v> {
    fn from(value: &'v [u8]) -> Self {
        Self::Bytes(Some(value))
    }
}

impl<'v> From<Option<&'v [u8]>> for Value<'v> {
    fn from(value: Option<&'v [u8]>) -> Self {
        Self::Bytes(value)
    }
}

/// One row of an answer.
pub(crate) enum Answer {
    Mysql(MySqlRow),
    Postgres(PgRow),
}

macro_rules! column {
    ($(#[$doc:meta])* $name:ident, $type:ty) => {
        $(#[$doc])*
        pub(crate) fn $name(&self, place: usize) -> Result<Option<$type>, Fault> {
            Ok(match self {
                Self::Mysql(row) => row.try_get_unchecked(place)?,
                Self::Postgres(row) => row.try_get_unchecked(place)?,
            })
        }
    };
}

impl Answer {
    column!(
        /// A whole number.
        maybe_int,
        i64
    );
    column!(
        /// Text.
        maybe_text,
        String
    );
    column!(
        /// Bytes.
        maybe_bytes,
        Vec<u8>
    );

    pub(crate) fn int(&self, place: usize) -> Result<i64, Fault> {
        self.maybe_int(place)?.ok_or_else(|| Fault::garbled("a number that is not there"))
    }

    pub(crate) fn text(&self, place: usize) -> Result<String, Fault> {
        self.maybe_text(place)?.ok_or_else(|| Fault::garbled("a text that is not there"))
    }

    pub(crate) fn bytes(&self, place: usize) -> Result<Vec<u8>, Fault> {
        self.maybe_bytes(place)?.ok_or_else(|| Fault::garbled("bytes that are not there"))
    }
}
