//! Errors of the database, sorted by what happens next.

use std::time::Duration;

use duly_core::store::{StoreError, StoreErrorKind};

/// Retries of a piece of work before its error is returned, if there is time.
const TRIES_MAX: u32 = 40;
/// The first wait between two tries of a transaction, and the longest. Not the retry policy, which is about messages.
const WAIT_MIN: Duration = Duration::from_millis(5);
const WAIT_MAX: Duration = Duration::from_millis(200);

/// So an error begins that a server gave which only lets itself be read.
const READ_ONLY: &str = "this database only lets itself be read";

/// Why a piece of work did not get done.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The server rolled it back: a deadlock, a lock that did not come free, a serialization failure. Nothing happened.
    RolledBack(sqlx::Error),
    /// An id that was to be new is known. Nothing happened.
    DuplicateId,
    /// The connection was lost. What was committed last may stand or not.
    Lost(sqlx::Error),
    /// The server lets itself only be read. After a failover the address may lead to another one.
    ReadOnly(StoreError),
    /// Anything else.
    Other(StoreError),
}

impl Fault {
    pub(crate) fn garbled(what: &str) -> Self {
        Self::Other(garbled(what))
    }

    /// A read had no answer in time.
    pub(super) fn late(waited: Duration) -> Self {
        let what =
            format!("the database gave no answer within {waited:?}: see whether it is up, and try again");
        Self::Other(unavailable(what).with_source(timed_out()))
    }

    /// A change had no answer in time.
    pub(super) fn unanswered(waited: Duration) -> Self {
        let what = format!(
            "the database gave no answer within {waited:?}; what was asked of it may have been done or not: see whether it is up, and try again"
        );
        Self::Other(StoreError::new(StoreErrorKind::Unanswered, what).with_source(timed_out()))
    }

    /// The same fault, when an earlier commit had no answer: the change may stand.
    pub(super) fn after_lost_commit(self) -> Self {
        let error = StoreError::from(self).of_kind(StoreErrorKind::Unanswered);
        Self::Other(error.in_words(|what| format!("{what}; the change may have been committed")))
    }

    /// Whether the connection is of no use any more.
    pub(super) fn ends_connection(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::ReadOnly(_))
    }

    /// Whether nobody knows what became of the last statement.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// How long to wait before the work is begun again, after the `tries`th time; `None`: it is not begun again. `number` is a
    /// different one each time.
    pub(super) fn wait(&self, tries: u32, number: u64) -> Option<Duration> {
        let may = match self {
            // After the server was started again, every connection that there is must be found broken once.
            Self::RolledBack(_) | Self::DuplicateId | Self::Lost(_) => tries < TRIES_MAX,
            Self::ReadOnly(_) | Self::Other(_) => false,
        };
        let top = WAIT_MIN.saturating_mul(1 << tries.min(10)).min(WAIT_MAX);
        // Transactions that collided once would collide again after equal waits.
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        may.then(|| top.mul_f64(spread as f64 / f64::from(1 << 24)))
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error;
        match error {
            Error::Database(ref refused) => {
                let code = refused.code().map(|code| code.into_owned()).unwrap_or_default();
                // MySQL gives its own number besides the state that the standard gives.
                let number = refused
                    .try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()
                    .map(sqlx::mysql::MySqlDatabaseError::number);
                match (number, code.as_str()) {
                    (Some(1205 | 1213), _) | (None, "40001" | "40P01" | "55P03") => Self::RolledBack(error),
                    (Some(1062), _) | (None, "23505") => Self::DuplicateId,
                    // The server goes down, is coming up, or has ended a session that was idle (4031, 25P03, 57P05).
                    (Some(1053 | 1077 | 1079 | 1927 | 1152 | 4031), _)
                    | (None, "57P01" | "57P02" | "57P03" | "57P05" | "08000" | "08003" | "08006" | "25P03") => {
                        Self::Lost(error)
                    }
                    (Some(1290 | 1792 | 1836), _) | (None, "25006") => {
                        Self::ReadOnly(refusal(number, &code, error))
                    }
                    _ => Self::Other(refusal(number, &code, error)),
                }
            }
            Error::Io(_) | Error::Protocol(_) | Error::WorkerCrashed | Error::BeginFailed => Self::Lost(error),
            Error::PoolTimedOut => Self::Other(unavailable(
                "no connection to the database came free in time; see whether it is up, or give Duly more connections".into(),
            ).with_source(error)),
            Error::PoolClosed => Self::Other(StoreError::new(StoreErrorKind::Closed, "the store is closed")),
            Error::ColumnDecode { .. } | Error::Decode(_) => {
                Self::Other(garbled(&format!("a row of the database ({error})")).with_source(error))
            }
            other => {
                let what = format!("the database cannot be used: {other}");
                Self::Other(unavailable(what).with_source(other))
            }
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Other(error)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::RolledBack(error) => unavailable(format!(
                "the database took the change back again and again, as others held the same rows: {error}; nothing happened, try again"
            ))
            .with_source(error),
            Fault::DuplicateId => unavailable(
                "others put the same ids there again and again; nothing happened, try again".into(),
            ),
            Fault::Lost(error) => {
                unavailable(format!("the connection to the database was lost: {error}")).with_source(error)
            }
            Fault::ReadOnly(error) | Fault::Other(error) => error,
        }
    }
}

/// The server refused, and would again.
fn refusal(number: Option<u16>, code: &str, error: sqlx::Error) -> StoreError {
    let reason = error.to_string();
    let refused = match (number, code) {
        (Some(1114 | 1021 | 1041 | 1037 | 3675), _) | (None, "53100" | "53200") => StoreError::new(
            StoreErrorKind::Full,
            format!("the database has no room for new messages: {reason}; make room on its disk"),
        ),
        (Some(1045 | 1130 | 1698), _) | (None, "28P01" | "28000") => unavailable(format!(
            "the database does not let this user in: {reason}; check the user and the password in the address, and whether \
             the user may come from this machine"
        )),
        (Some(1044 | 1142 | 1143 | 1227 | 1370), _) | (None, "42501") => unavailable(format!(
            "the database does not let this user do what Duly needs: {reason}; grant it all rights on its database"
        )),
        (Some(1040 | 1203 | 1226), _) | (None, "53300") => unavailable(format!(
            "the database takes no more connections: {reason}; let it take more (max_connections), or have Duly use fewer"
        )),
        (Some(1049), _) | (None, "3D000") => {
            unavailable(format!("there is no such database: {reason}; create it, it may be empty"))
        }
        (Some(1146 | 1054), _) | (None, "42P01" | "42703") => StoreError::new(
            StoreErrorKind::Damaged,
            format!(
                "a table of Duly's is gone or was changed: {reason}; restore it from a backup, or start with an empty database"
            ),
        ),
        (Some(1290 | 1792 | 1836), _) | (None, "25006") => {
            unavailable(format!("{READ_ONLY}: {reason}; point Duly at the one that is written to"))
        }
        _ => unavailable(format!("the database refused: {reason}")),
    };
    refused.with_source(error)
}

/// The cause of an error that is only an absent answer: whoever opens a store may wait for it.
fn timed_out() -> std::io::Error {
    std::io::ErrorKind::TimedOut.into()
}

fn unavailable(what: String) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, what)
}

/// Whether the server only lets itself be read: the next try will find it so, too.
pub(super) fn is_read_only(error: &StoreError) -> bool {
    error.kind == StoreErrorKind::Unavailable && error.what.starts_with(READ_ONLY)
}

/// The stored data is not what Duly wrote.
pub(super) fn garbled(what: &str) -> StoreError {
    StoreError::new(
        StoreErrorKind::Damaged,
        format!(
            "what the database has as {what} is not what Duly put there; somebody else may have changed it"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_of_the_driver_keeps_its_error_as_the_cause() {
        let io = || sqlx::Error::Io(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        let faults = [
            Fault::from(io()),
            Fault::from(io()).after_lost_commit(),
            Fault::RolledBack(io()),
            Fault::from(sqlx::Error::Decode("no number".into())),
            Fault::from(sqlx::Error::Tls("no certificate".into())),
            Fault::Other(refusal(Some(1114), "HY000", io())),
        ];
        for fault in faults {
            let error = StoreError::from(fault);
            let cause = error.cause::<sqlx::Error>().expect("the driver's error");
            assert_eq!(error.what.matches(&cause.to_string()).count(), 1, "{error}");
        }
    }
}
