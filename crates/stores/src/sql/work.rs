//! How work at the database is done: in one transaction, in time, and again if the server took it back.

use std::time::Duration;

use super::{SqlStore, fault::Fault};

/// A piece of work takes no longer than this, however often it is tried. A server that does not answer must not keep the
/// caller.
const PATIENCE: Duration = Duration::from_secs(10);

/// Does work in a transaction that is committed at its end. If the server takes it back, it is done again. If the answer
/// to the commit got lost, it is found out whether it was committed; if it was, what the work gave then is the answer.
///
/// Work that counts nothing leaves no trace of itself, so it must be as good twice as once.
///
/// With `from`, the first try is made on that session, if it is one: it has just been used and saves a change of hands.
macro_rules! transact {
    ($store:expr, |$session:ident| $work:expr) => {
        transact!($store, from None, |$session| $work)
    };
    ($store:expr, from $first:expr, |$session:ident| $work:expr) => {{
        let all = async {
            let mut first: Option<$crate::sql::connection::Session> = $first;
            // What the work gave, and what it has to tell, while nobody knows whether it was committed.
            let (mut tries, mut call, mut unsure) = (0, None, None);
            loop {
                tries += 1;
                let tried = async {
                    let mut $session = match (first.take(), &unsure) {
                        (Some(session), _) => session,
                        // What may have been done is worth waiting for.
                        (None, Some(_)) => $store.link.session_at_last().await?,
                        (None, None) => $store.link.session().await?,
                    };
                    let name = call.get_or_insert_with(|| $store.calls.begin()).name();
                    $session.begin(name, tries);
                    if unsure.is_some() {
                        match $store.was_done(&mut $session, name).await {
                            Ok(true) => {
                                $session.end().await;
                                return Ok(());
                            }
                            Ok(false) => unsure = None,
                            Err(fault) => {
                                $session.give_up(&fault).await;
                                return Err(fault);
                            }
                        }
                    }
                    match $work.await {
                        Ok(done) => {
                            unsure = Some((done, std::mem::take(&mut $session.news)));
                            $session.commit().await.inspect_err(|fault| {
                                if !fault.is_lost() {
                                    unsure = None;
                                }
                            })
                        }
                        Err(fault) => {
                            $session.give_up(&fault).await;
                            Err(fault)
                        }
                    }
                };
                match (tried.await, unsure.take()) {
                    (Ok(()), Some((done, news))) => {
                        $store.note_news(news);
                        break Ok(done);
                    }
                    (Ok(()), None) => break Err($crate::sql::fault::Fault::garbled("an answer")),
                    (Err(fault), given) => {
                        unsure = given;
                        if let Err(fault) = $store.before_another_try(fault, tries).await {
                            break Err(if unsure.is_some() { fault.after_lost_commit() } else { fault });
                        }
                    }
                }
            }
        };
        $store.in_time(all, $crate::sql::fault::Fault::unanswered).await
    }};
}

/// Looks at something, without a transaction.
macro_rules! read {
    ($store:expr, |$session:ident| $work:expr) => {{
        let all = async {
            let mut tries = 0;
            loop {
                tries += 1;
                let tried = async {
                    let mut $session = $store.link.session().await?;
                    $work.await
                };
                match tried.await {
                    Ok(done) => break Ok(done),
                    Err(fault) => {
                        if let Err(fault) = $store.before_another_try(fault, tries).await {
                            break Err(fault);
                        }
                    }
                }
            }
        };
        $store.in_time(all, $crate::sql::fault::Fault::late).await
    }};
}

pub(super) use {read, transact};

impl SqlStore {
    pub(super) async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, Fault>>,
        late: impl Fn(Duration) -> Fault,
    ) -> Result<T, duly_core::store::StoreError> {
        match tokio::time::timeout(PATIENCE, work).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(late(PATIENCE).into()),
        }
    }

    /// Waits until the work may be begun again, or gives the fault back.
    pub(super) async fn before_another_try(&self, fault: Fault, tries: u32) -> Result<(), Fault> {
        let Some(wait) = fault.wait(tries, self.calls.next() as u64) else { return Err(fault) };
        tracing::debug!(tries, ?fault, "transaction retried");
        #[expect(clippy::disallowed_methods, reason = "a moment for a real server to let go of its locks")]
        tokio::time::sleep(wait).await;
        Ok(())
    }
}
