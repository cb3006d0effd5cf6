//! The setting that makes Redis publish expiry events.

use redis::aio::MultiplexedConnection;

use crate::Error;

const SETTING: &str = "notify-keyspace-events";

/// The flags plus those missing for expiry events; `None` if none is missing. No flag is removed.
fn completed(flags: &str) -> Option<String> {
    let events = flags.contains('E');
    // `A` is an alias for all kinds of events.
    let expired = flags.contains(['x', 'A']);
    let missing = [(events, "E"), (expired, "x")];
    let missing: String = missing.into_iter().filter(|(there, _)| !there).map(|(_, flag)| flag).collect();
    (!missing.is_empty()).then(|| format!("{flags}{missing}"))
}

/// Adds the missing flags on one server. The error says what to set there.
pub(super) async fn ensure(server: &str, connection: &mut MultiplexedConnection) -> Result<(), Error> {
    let asked = redis::cmd("CONFIG").arg("GET").arg(SETTING).query_async(connection).await;
    let (_, flags): (String, String) = match asked {
        Ok(flags) => flags,
        Err(error) if is_refused(&error) => {
            let what = format!(
                "{server} does not allow this user to read {SETTING} ({error}): make sure that it has the flags E and x, \
                 then call assume_enabled()"
            );
            return Err(Error::refused(what, error));
        }
        Err(error) => return Err(Error::from_redis(&error)),
    };
    let Some(wanted) = completed(&flags) else { return Ok(()) };
    let set = redis::cmd("CONFIG").arg("SET").arg(SETTING).arg(&wanted).exec_async(connection).await;
    match set {
        Ok(()) => {
            tracing::info!(
                server,
                setting = SETTING,
                before = %flags,
                after = %wanted,
                "expiry events enabled"
            );
            Ok(())
        }
        Err(error) if is_refused(&error) => {
            let what = format!(
                "expiry events are off on {server}, and this user may not enable them ({error}): set {SETTING} there to {wanted:?}"
            );
            Err(Error::refused(what, error))
        }
        Err(error) => Err(Error::from_redis(&error)),
    }
}

/// Whether Redis refused the command.
fn is_refused(error: &redis::RedisError) -> bool {
    matches!(Error::from_redis(error), Error::Refused { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_added_and_none_is_taken_away() {
        for (flags, wanted) in [
            ("", Some("Ex")),
            ("E", Some("Ex")),
            ("x", Some("xE")),
            ("K$", Some("K$Ex")),
            ("AK", Some("AKE")),
            ("KA", Some("KAE")),
            ("AKE", None),
            ("xE", None),
            ("xKE", None),
            ("gE", Some("gEx")),
        ] {
            assert_eq!(completed(flags).as_deref(), wanted, "{flags:?}");
        }
    }
}
