//! How work at the database is done: in one transaction, within a time limit, and again if the server took it back.

use std::{marker::PhantomData, pin::Pin, time::Duration};

use duly_core::store::StoreError;

use super::{IndexEntry, SqlStore, call::CallGuard, connection::Session, fault::Fault};

/// A piece of work takes no longer than this, however often it is tried. A server that does not answer must not keep the
/// caller.
const PATIENCE: Duration = Duration::from_secs(10);

/// A session that is lent to a piece of work.
///
/// `'s` is how long the loan lasts, and `'a` how long everything lasts that the work borrows besides. `'a` outlives `'s`: a bound on
/// a closure cannot say that of every `'s`, but this type does.
pub(super) struct BorrowedSession<'s, 'a> {
    pub(super) session: &'s mut Session,
    outlives: PhantomData<&'s &'a ()>,
}

impl<'s> BorrowedSession<'s, '_> {
    fn new(session: &'s mut Session) -> Self {
        Self { session, outlives: PhantomData }
    }
}

/// A piece of work while it is done. It is boxed, because the compiler cannot yet prove that the future of an async closure is
/// `Send` for every loan.
pub(super) type WorkFuture<'s, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 's>>;

/// A transaction over all its tries.
struct Transaction<'c, T> {
    /// A session for the first try.
    first: Option<Session>,
    tries: u32,
    /// Begun with the first try that has a session.
    call: Option<CallGuard<'c>>,
    /// The result of the work and the entries to add to the index, while it is not known whether it was committed.
    unconfirmed: Option<(T, Vec<IndexEntry>)>,
}

impl SqlStore {
    /// Does work in a transaction and commits it. If the server takes it back, the work is done again. If the answer to the commit
    /// is lost, the database is asked whether it was committed; if it was, the result of that try is returned.
    ///
    /// Work that counts nothing leaves no trace of itself, so doing it twice must be as good as doing it once.
    pub(super) async fn transact<'a, T>(
        &self,
        work: impl for<'s> Fn(BorrowedSession<'s, 'a>) -> WorkFuture<'s, T>,
    ) -> Result<T, StoreError> {
        self.transact_from(None, work).await
    }

    /// The same, with the first try on the session `first` if there is one: it was just used, and a change of connection is saved.
    pub(super) async fn transact_from<'a, T>(
        &self,
        first: Option<Session>,
        work: impl for<'s> Fn(BorrowedSession<'s, 'a>) -> WorkFuture<'s, T>,
    ) -> Result<T, StoreError> {
        let all = async {
            let mut transaction = Transaction { first, tries: 0, call: None, unconfirmed: None };
            loop {
                let outcome = self.try_once(&mut transaction, &work).await;
                match (outcome, transaction.unconfirmed.take()) {
                    (Ok(()), Some((done, index_entries))) => {
                        self.add_index_entries(index_entries);
                        break Ok(done);
                    }
                    (Ok(()), None) => break Err(Fault::garbled("an answer")),
                    (Err(fault), unconfirmed) => {
                        transaction.unconfirmed = unconfirmed;
                        if let Err(fault) = self.before_another_try(fault, transaction.tries).await {
                            let is_unconfirmed = transaction.unconfirmed.is_some();
                            break Err(if is_unconfirmed { fault.after_lost_commit() } else { fault });
                        }
                    }
                }
            }
        };
        self.in_time(all, Fault::unanswered).await
    }

    /// One try. After `Ok` the transaction was committed by this try or by an earlier one.
    async fn try_once<'s, 'a, T>(
        &'s self,
        transaction: &mut Transaction<'s, T>,
        work: &impl for<'w> Fn(BorrowedSession<'w, 'a>) -> WorkFuture<'w, T>,
    ) -> Result<(), Fault> {
        transaction.tries += 1;
        let mut session = match (transaction.first.take(), &transaction.unconfirmed) {
            (Some(session), _) => session,
            // A change that may have been committed is worth waiting for.
            (None, Some(_)) => self.link.session_at_last().await?,
            (None, None) => self.link.session().await?,
        };
        let call = transaction.call.get_or_insert_with(|| self.calls.begin()).name();
        session.begin(call, transaction.tries);
        if transaction.unconfirmed.is_some() {
            match self.was_done(&mut session, call).await {
                Ok(true) => {
                    session.end().await;
                    return Ok(());
                }
                Ok(false) => transaction.unconfirmed = None,
                Err(fault) => {
                    session.give_up(&fault).await;
                    return Err(fault);
                }
            }
        }
        match work(BorrowedSession::new(&mut session)).await {
            Ok(done) => {
                transaction.unconfirmed = Some((done, std::mem::take(&mut session.index_entries)));
                session.commit().await.inspect_err(|fault| {
                    if !fault.is_lost() {
                        transaction.unconfirmed = None;
                    }
                })
            }
            Err(fault) => {
                session.give_up(&fault).await;
                Err(fault)
            }
        }
    }

    /// Reads without a transaction.
    pub(super) async fn read<'a, T>(
        &self,
        work: impl for<'s> Fn(BorrowedSession<'s, 'a>) -> WorkFuture<'s, T>,
    ) -> Result<T, StoreError> {
        self.read_with_session(work).await.map(|(done, _)| done)
    }

    /// The same, and returns the session as well, for more work.
    pub(super) async fn read_with_session<'a, T>(
        &self,
        work: impl for<'s> Fn(BorrowedSession<'s, 'a>) -> WorkFuture<'s, T>,
    ) -> Result<(T, Session), StoreError> {
        let all = async {
            let mut tries = 0;
            loop {
                tries += 1;
                let outcome = async {
                    let mut session = self.link.session().await?;
                    let done = work(BorrowedSession::new(&mut session)).await?;
                    Ok::<_, Fault>((done, session))
                };
                match outcome.await {
                    Ok(done) => break Ok(done),
                    Err(fault) => self.before_another_try(fault, tries).await?,
                }
            }
        };
        self.in_time(all, Fault::late).await
    }

    pub(super) async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, Fault>>,
        late: impl Fn(Duration) -> Fault,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(PATIENCE, work).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(late(PATIENCE).into()),
        }
    }

    /// Waits until the work may be begun again, or returns the fault: there is a limit to tries.
    async fn before_another_try(&self, fault: Fault, tries: u32) -> Result<(), Fault> {
        let Some(wait) = fault.wait(tries, self.calls.next() as u64) else { return Err(fault) };
        tracing::debug!(tries, ?fault, "transaction retried");
        #[expect(clippy::disallowed_methods, reason = "a moment for a real server to let go of its locks")]
        tokio::time::sleep(wait).await;
        Ok(())
    }
}
