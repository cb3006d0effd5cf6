//! How work at the database is done: in one transaction, in time, and again if the server took it back.

use std::time::Duration;

use super::{SqlStore, fault::Fault};

/// A piece of work takes no longer than this. A server that does not answer must not keep the caller.
const PATIENCE: Duration = Duration::from_secs(10);

/// Does work in a transaction that is committed at its end. If the server takes it back, or the answer to the commit got
/// lost, the work is done again: it must know by its call what it had done.
macro_rules! transact {
    ($store:expr, |$session:ident| $work:expr) => {{
        let mut tries = 0;
        loop {
            tries += 1;
            let work = async {
                let mut $session: $crate::sql::link::Session = $store.link.session().await?;
                $session.begin().await?;
                match $work.await {
                    Ok(done) => {
                        let news = std::mem::take(&mut $session.news);
                        $session.commit().await?;
                        $store.note_news(news);
                        Ok(done)
                    }
                    Err(fault) => {
                        $session.give_up(&fault).await;
                        Err(fault)
                    }
                }
            };
            match $store.in_time(work).await {
                Ok(done) => break Ok::<_, duly_core::store::StoreError>(done),
                Err(fault) => {
                    if let Err(fault) = $store.before_another_try(fault, tries).await {
                        break Err(fault.into());
                    }
                }
            }
        }
    }};
}

/// Looks at something, without a transaction.
macro_rules! look {
    ($store:expr, |$session:ident| $work:expr) => {{
        let mut tries = 0;
        loop {
            tries += 1;
            let work = async {
                let mut $session = $store.link.session().await?;
                $work.await
            };
            match $store.in_time(work).await {
                Ok(done) => break Ok::<_, duly_core::store::StoreError>(done),
                Err(fault) => {
                    if let Err(fault) = $store.before_another_try(fault, tries).await {
                        break Err(fault.into());
                    }
                }
            }
        }
    }};
}

pub(super) use {look, transact};

impl SqlStore {
    pub(super) async fn in_time<T>(&self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        match tokio::time::timeout(PATIENCE, work).await {
            Ok(done) => done,
            Err(_) => {
                let late = std::io::Error::new(
                    std::io::ErrorKind::TimedOut,
                    format!("no answer within {PATIENCE:?}"),
                );
                Err(Fault::Lost(sqlx::Error::Io(late)))
            }
        }
    }

    /// Waits until the work may be begun again, or gives the fault back.
    pub(super) async fn before_another_try(&self, fault: Fault, tries: u32) -> Result<(), Fault> {
        let Some(wait) = fault.wait(tries, self.calls.next() as u64) else { return Err(fault) };
        tracing::debug!(tries, "once more: {fault:?}");
        #[expect(clippy::disallowed_methods, reason = "a moment for a real server to let go of its locks")]
        tokio::time::sleep(wait).await;
        Ok(())
    }
}
