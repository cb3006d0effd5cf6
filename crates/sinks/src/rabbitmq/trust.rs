//! What a connection has shown to be harmless. The broker closes the channel of whoever publishes where they may not, to an
//! exchange that is not there, or too much at once: what might do that goes alone first.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use super::{
    failure::{Cause, is_long_key},
    parcel::Parcel,
};

/// Exchanges that are remembered, at most; then all are forgotten, and one message of each goes alone again.
const EXCHANGES_MAX: usize = 4_096;
/// Routing keys that may not be written to, at most; then all are forgotten.
const KEYS_MAX: usize = 1_024;
/// Beginnings of such keys that were too long for the broker's words, at most; then all are forgotten.
const LONG_KEYS_MAX: usize = 64;
/// A body of no more bytes is taken by any broker.
const SIZE_SURE: usize = 64 << 10;

/// Forgotten with its connection.
#[derive(Default)]
pub(super) struct Trust(Mutex<Known>);

struct Known {
    /// Exchanges that took a message.
    exchanges: HashSet<String>,
    /// Exchange and routing key, where the user may write to others of the exchange.
    forbidden: HashSet<(String, String)>,
    /// The same, as the broker began to name them.
    long: Vec<String>,
    /// The largest body that was taken.
    size: usize,
}

impl Default for Known {
    fn default() -> Self {
        Self { exchanges: HashSet::new(), forbidden: HashSet::new(), long: Vec::new(), size: SIZE_SURE }
    }
}

/// How a message may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passage {
    /// Beside others.
    Shared,
    /// Its exchange is not known yet: one message of it goes alone, and tells for the others.
    First,
    /// Alone, for its own sake.
    Alone,
}

impl Trust {
    pub(super) fn passage(&self, parcel: &Parcel) -> Passage {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_forbidden = !known.forbidden.is_empty()
            && known.forbidden.contains(&(parcel.exchange.to_string(), parcel.key.to_string()));
        if is_forbidden || known.is_long(parcel) || parcel.size() > known.size {
            Passage::Alone
        } else if known.exchanges.contains(parcel.exchange.as_str()) {
            Passage::Shared
        } else {
            Passage::First
        }
    }

    /// The broker let it pass.
    pub(super) fn passed(&self, parcel: &Parcel) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.size = known.size.max(parcel.size());
        if !known.forbidden.is_empty() {
            known.forbidden.remove(&(parcel.exchange.to_string(), parcel.key.to_string()));
        }
        let (exchange, key) = (parcel.exchange.as_str(), parcel.key.as_str());
        known.long.retain(|begin| !is_long_key(begin, exchange, key));
        known.trust(exchange);
    }

    /// The broker closed a channel for a key of this exchange: its right to the exchange was asked for before.
    pub(super) fn has_exchange(&self, exchange: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).trust(exchange);
    }

    /// The broker closed a channel for this.
    pub(super) fn ended(&self, cause: &Cause) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match cause {
            Cause::Exchange(exchange) => {
                known.exchanges.remove(exchange);
            }
            Cause::Key { exchange, key } => {
                // The right to the exchange is asked for before that to the key.
                known.trust(exchange);
                if known.forbidden.len() >= KEYS_MAX {
                    known.forbidden.clear();
                }
                known.forbidden.insert((exchange.clone(), key.clone()));
            }
            Cause::LongKey { begin } => {
                if known.long.len() >= LONG_KEYS_MAX {
                    known.long.clear();
                }
                if !known.long.contains(begin) {
                    known.long.push(begin.clone());
                }
            }
            Cause::Size { max, .. } => known.size = known.size.min(*max),
            Cause::Other => {}
        }
    }
}

impl Known {
    fn is_long(&self, parcel: &Parcel) -> bool {
        self.long.iter().any(|begin| is_long_key(begin, parcel.exchange.as_str(), parcel.key.as_str()))
    }

    fn trust(&mut self, exchange: &str) {
        if !self.exchanges.contains(exchange) {
            if self.exchanges.len() >= EXCHANGES_MAX {
                self.exchanges.clear();
            }
            self.exchanges.insert(exchange.to_owned());
        }
    }
}
