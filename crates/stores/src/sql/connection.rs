//! Connections to the database.

use std::time::Duration;

use futures_util::{Stream, TryStreamExt};
use sqlx::{AssertSqlSafe, Either, MySql, MySqlPool, PgPool, Postgres, pool::PoolConnection};

pub(crate) use super::statement::{ServerRow, Statement};
use super::{
    call::CallId,
    connectivity::ConnectivityCheck,
    fault::Fault,
    statement::{StatementResult, Values},
};

/// A connection that does not answer when it is given back is closed after this.
const RETURN_WITHIN: Duration = Duration::from_secs(5);

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
    connectivity: ConnectivityCheck,
}

#[derive(Debug)]
enum Pools {
    Mysql(MySqlPool),
    Postgres(PgPool),
}

impl Link {
    pub(super) fn mysql(pool: MySqlPool) -> Self {
        Self { pools: Pools::Mysql(pool), connectivity: ConnectivityCheck::default() }
    }

    pub(super) fn postgres(pool: PgPool) -> Self {
        Self { pools: Pools::Postgres(pool), connectivity: ConnectivityCheck::default() }
    }

    pub(crate) fn dialect(&self) -> Dialect {
        match self.pools {
            Pools::Mysql(_) => Dialect::Mysql,
            Pools::Postgres(_) => Dialect::Postgres,
        }
    }

    /// A connection for one piece of work. A server that cannot be reached is an error soon.
    pub(crate) async fn session(&self) -> Result<Session, Fault> {
        Ok(Session::on(match &self.pools {
            Pools::Mysql(pool) => Connection::Mysql(self.connectivity.acquire(pool).await?),
            Pools::Postgres(pool) => Connection::Postgres(self.connectivity.acquire(pool).await?),
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

/// How far a transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    /// It begins with the next statement, and goes to the server with it where that can be.
    Due,
    Begun,
}

/// One connection while it is worked with. If the work is given up in the middle, the connection is closed, and so the
/// server takes back what was not committed.
#[derive(Debug)]
pub(crate) struct Session {
    connection: Option<Connection>,
    transaction: Transaction,
    /// The answer to a statement has not come.
    is_asking: bool,
    /// The changes that the index gets after the commit.
    pub(super) index_entries: Vec<super::IndexEntry>,
    /// Whose transaction it is, and how often it was tried.
    call: Option<(CallId, u32)>,
}

impl Session {
    fn on(connection: Connection) -> Self {
        Self {
            connection: Some(connection),
            transaction: Transaction::None,
            is_asking: false,
            call: None,
            index_entries: Vec::new(),
        }
    }

    /// Begins a transaction of a call that is tried for the `tries`th time, unless it [has begun](Self::begin_early).
    pub(crate) fn begin(&mut self, call: CallId, tries: u32) {
        self.begin_early();
        self.call = Some((call, tries));
    }

    /// Begins a transaction of a call that is not known yet.
    pub(crate) fn begin_early(&mut self) {
        if self.transaction == Transaction::None {
            self.transaction = Transaction::Due;
        }
    }

    /// Whose transaction this is, and how often it was tried.
    pub(super) fn call(&self) -> Option<(CallId, u32)> {
        self.call
    }

    /// Takes back what was done since [`begin`](Self::begin), lets go of every lock, and begins again.
    pub(crate) async fn start_over(&mut self) -> Result<(), Fault> {
        self.index_entries.clear();
        self.plain("ROLLBACK AND CHAIN").await
    }

    /// If this fails for another reason than a refusal of the server, what was done may stand or not.
    pub(crate) async fn commit(mut self) -> Result<(), Fault> {
        self.finish("COMMIT").await
    }

    /// The work failed. If the connection is good, what was done is taken back and the connection kept.
    pub(crate) async fn give_up(self, fault: &Fault) {
        if !fault.ends_connection() {
            self.end().await;
        }
    }

    /// Ends a transaction that is not to be committed. If the server does not answer, it ends with the connection.
    pub(crate) async fn end(mut self) {
        self.roll_back().await;
    }

    /// The same, and keeps the session.
    pub(crate) async fn roll_back(&mut self) {
        // A transaction that may be open ends when the connection is closed.
        let _ = self.finish("ROLLBACK").await;
    }

    async fn finish(&mut self, how: &'static str) -> Result<(), Fault> {
        if self.transaction == Transaction::Begun {
            self.plain(how).await?;
        }
        self.transaction = Transaction::None;
        Ok(())
    }

    /// Statements that take no values.
    pub(crate) async fn plain(&mut self, text: &'static str) -> Result<(), Fault> {
        self.begin_if_due().await?;
        self.raw(text).await
    }

    async fn raw(&mut self, text: &'static str) -> Result<(), Fault> {
        self.is_asking = true;
        match self.connection()? {
            Connection::Mysql(connection) => {
                sqlx::raw_sql(text).execute(&mut **connection).await.map(|_| ())?
            }
            Connection::Postgres(connection) => {
                sqlx::raw_sql(text).execute(&mut **connection).await.map(|_| ())?;
            }
        }
        self.is_asking = false;
        Ok(())
    }

    async fn begin_if_due(&mut self) -> Result<(), Fault> {
        if self.transaction == Transaction::Due {
            self.transaction = Transaction::Begun;
            self.raw("BEGIN").await?;
        }
        Ok(())
    }

    /// Runs a statement. Returns how many rows it touched.
    pub(crate) async fn run(&mut self, statement: Statement) -> Result<u64, Fault> {
        self.begin_if_due().await?;
        self.is_asking = true;
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
        self.is_asking = false;
        Ok(touched)
    }

    /// Runs a statement. Returns the rows that it answers with.
    pub(crate) async fn rows(&mut self, statement: Statement) -> Result<Vec<ServerRow>, Fault> {
        self.begin_if_due().await?;
        self.is_asking = true;
        let text = AssertSqlSafe(statement.text);
        let rows = match (self.connection()?, statement.values) {
            (Connection::Mysql(connection), Values::Mysql(values)) => {
                let rows = sqlx::query_with(text, values).fetch_all(&mut **connection).await?;
                rows.into_iter().map(ServerRow::Mysql).collect()
            }
            (Connection::Postgres(connection), Values::Postgres(values)) => {
                let rows = sqlx::query_with(text, values).fetch_all(&mut **connection).await?;
                rows.into_iter().map(ServerRow::Postgres).collect()
            }
            _ => return Err(Fault::garbled("a statement for another database")),
        };
        self.is_asking = false;
        Ok(rows)
    }

    /// Runs [written](Statement::written) statements one after the other, up to the first that fails, for the time that one
    /// takes to go there and back.
    pub(crate) async fn script(&mut self, statements: Vec<Statement>) -> Result<Vec<StatementResult>, Fault> {
        let begins = self.transaction == Transaction::Due;
        let mut text = String::from(if begins { "BEGIN" } else { "" });
        for statement in &statements {
            if !text.is_empty() {
                text.push_str("; ");
            }
            text.push_str(&statement.text);
        }
        if begins {
            self.transaction = Transaction::Begun;
        }
        self.is_asking = true;
        let script = sqlx::raw_sql(AssertSqlSafe(text));
        let mut replies = vec![StatementResult::default()];
        match self.connection()? {
            Connection::Mysql(connection) => {
                let answers = script
                    .fetch_many(&mut **connection)
                    .map_ok(|answer| answer.map_either(|done| done.rows_affected(), ServerRow::Mysql));
                collect_replies(answers, &mut replies).await?;
            }
            Connection::Postgres(connection) => {
                let answers = script
                    .fetch_many(&mut **connection)
                    .map_ok(|answer| answer.map_either(|done| done.rows_affected(), ServerRow::Postgres));
                collect_replies(answers, &mut replies).await?;
            }
        }
        self.is_asking = false;
        if begins {
            replies.remove(0);
        }
        replies.truncate(statements.len());
        if replies.len() < statements.len() {
            return Err(Fault::garbled("an answer that is not there"));
        }
        Ok(replies)
    }

    fn connection(&mut self) -> Result<&mut Connection, Fault> {
        self.connection.as_mut().ok_or_else(|| Fault::garbled("a connection that was given back"))
    }
}

/// Adds what a script answers: the rows of each statement, and behind them how many it touched.
async fn collect_replies(
    answers: impl Stream<Item = sqlx::Result<Either<u64, ServerRow>>>,
    replies: &mut Vec<StatementResult>,
) -> Result<(), Fault> {
    let mut answers = std::pin::pin!(answers);
    while let Some(answer) = answers.try_next().await? {
        let Some(reply) = replies.last_mut() else { continue };
        match answer {
            Either::Right(row) => reply.rows.push(row),
            Either::Left(touched) => {
                reply.touched = touched;
                replies.push(StatementResult::default());
            }
        }
    }
    Ok(())
}

impl Drop for Session {
    fn drop(&mut self) {
        let is_open = self.is_asking || self.transaction == Transaction::Begun;
        match self.connection.take() {
            // Detached and dropped: the socket is closed at once, whatever the server is doing.
            Some(Connection::Mysql(connection)) if is_open => drop(connection.detach()),
            Some(Connection::Postgres(connection)) if is_open => drop(connection.detach()),
            Some(Connection::Mysql(connection)) => return_to_pool(connection),
            Some(Connection::Postgres(connection)) => return_to_pool(connection),
            None => {}
        }
    }
}

/// The pool asks a connection whether it is still good when it comes back, and would wait for the answer as long as it
/// takes: a network that is silent would use up all connections there may be.
fn return_to_pool<DB: sqlx::Database>(mut connection: PoolConnection<DB>) {
    let returned = connection.return_to_pool();
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move { tokio::time::timeout(RETURN_WITHIN, returned).await });
    }
}
