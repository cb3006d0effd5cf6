//! Bytes at which the wire breaks.

/// When it breaks, seen from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// It has not got the bytes.
    Before,
    /// It has got them, and we do not wait for it.
    On,
    /// It has answered them.
    After,
}

/// What all connections of a proxy look for.
#[derive(Debug, Default)]
pub(super) struct Trap {
    armed: Option<Armed>,
    met: usize,
}

#[derive(Debug)]
struct Armed {
    moment: Moment,
    needle: Vec<u8>,
    times: usize,
}

/// The end of what one connection has sent, in which a needle may have begun.
#[derive(Debug, Default)]
pub(super) struct SeenBytes(Vec<u8>);

impl Trap {
    /// # Panics
    /// If the needle is empty.
    pub(super) fn set(&mut self, moment: Moment, needle: &[u8], times: usize) {
        assert!(!needle.is_empty(), "a needle has at least one byte");
        self.armed = (times > 0).then(|| Armed { moment, needle: needle.to_owned(), times });
    }

    pub(super) fn met(&self) -> usize {
        self.met
    }

    /// Whether the wire breaks at `bytes`, the next of a connection, and when.
    pub(super) fn meets(&mut self, seen: &mut SeenBytes, bytes: &[u8]) -> Option<Moment> {
        let Some(armed) = &mut self.armed else {
            // A needle is sent in one piece by a client that the test has told to send it; what was before does not count.
            seen.0.clear();
            return None;
        };
        seen.0.extend_from_slice(bytes);
        if !seen.0.windows(armed.needle.len()).any(|window| window == armed.needle) {
            let before = seen.0.len().saturating_sub(armed.needle.len() - 1);
            seen.0.drain(..before);
            return None;
        }
        let moment = armed.moment;
        armed.times -= 1;
        if armed.times == 0 {
            self.armed = None;
        }
        Some(moment)
    }

    /// The wire broke.
    pub(super) fn broke(&mut self) {
        self.met += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_needle_is_found_also_in_two_pieces_and_as_often_as_asked() {
        let (mut trap, mut seen) = (Trap::default(), SeenBytes::default());
        assert_eq!(trap.meets(&mut seen, b"COMMIT"), None);
        trap.set(Moment::After, b"COMMIT", 2);
        assert_eq!(trap.meets(&mut seen, b"BEGIN COM"), None);
        assert_eq!(trap.meets(&mut SeenBytes::default(), b"MIT"), None, "that is another connection");
        assert_eq!(trap.meets(&mut seen, b"MIT x"), Some(Moment::After));
        assert_eq!(trap.meets(&mut SeenBytes::default(), b"COMMIT"), Some(Moment::After));
        assert_eq!(trap.meets(&mut SeenBytes::default(), b"COMMIT"), None);
    }
}
