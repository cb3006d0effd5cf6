//! The setting without which Redis tells nobody that a key expired.

use redis::aio::MultiplexedConnection;

use crate::Error;

const SETTING: &str = "notify-keyspace-events";

/// The flags with what is missing for events of expired keys, or nothing if they are all there. None is taken away.
fn completed(flags: &str) -> Option<String> {
    let events = flags.contains('E');
    // `A` is short for all kinds, that of expired keys among them.
    let expired = flags.contains(['x', 'A']);
    let missing = [(events, "E"), (expired, "x")];
    let missing: String = missing.into_iter().filter(|(there, _)| !there).map(|(_, flag)| flag).collect();
    (!missing.is_empty()).then(|| format!("{flags}{missing}"))
}

/// Adds what is missing on one server; or says what to set there.
pub(super) async fn ensure(server: &str, connection: &mut MultiplexedConnection) -> Result<(), Error> {
    let asked = redis::cmd("CONFIG").arg("GET").arg(SETTING).query_async(connection).await;
    let (_, flags): (String, String) = match asked {
        Ok(flags) => flags,
        Err(error) if is_refused(&error) => {
            let what = format!(
                "{server} does not tell whether its events of expired keys are on ({error}): see to it that {SETTING} there has the flags E \
                 and x, and then say so by assume_enabled()"
            );
            return Err(Error::refused(what, error));
        }
        Err(error) => return Err(Error::of(&error)),
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
                "the events of expired keys are off on {server}, and this user may not turn them on ({error}): set {SETTING} there to {wanted:?}"
            );
            Err(Error::refused(what, error))
        }
        Err(error) => Err(Error::of(&error)),
    }
}

/// It answered, and said no.
fn is_refused(error: &redis::RedisError) -> bool {
    matches!(Error::of(error), Error::Refused { .. })
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
