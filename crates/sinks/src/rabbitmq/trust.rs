//! What is known to be harmless on a connection. The broker closes a channel on which a message is published without the right to, to a
//! missing exchange, or with too large a body: a message that may cause this is published alone first.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use super::{
    failure::{Cause, is_long_key},
    message::OutgoingMessage,
};

/// Exchanges that are remembered, at most; then all are forgotten, and one message of each goes alone again.
const EXCHANGES_MAX: usize = 4_096;
/// Routing keys that may not be written to, at most; then all are forgotten.
const KEYS_MAX: usize = 1_024;
/// Prefixes of such keys that are remembered, at most: the error of the broker cuts long keys off. Then all are forgotten.
const LONG_KEYS_MAX: usize = 64;
/// A body of no more bytes is taken by any broker.
const SIZE_SURE: usize = 64 << 10;

/// Forgotten with its connection.
#[derive(Default)]
pub(super) struct Trust(Mutex<TrustState>);

struct TrustState {
    /// Exchanges that took a message.
    exchanges: HashSet<String>,
    /// Exchange and routing key, where the user may write to others of the exchange.
    forbidden: HashSet<(String, String)>,
    /// The same, cut off as in the error of the broker.
    long: Vec<String>,
    /// The largest body that was taken.
    size: usize,
}

impl Default for TrustState {
    fn default() -> Self {
        Self { exchanges: HashSet::new(), forbidden: HashSet::new(), long: Vec::new(), size: SIZE_SURE }
    }
}

/// How a message is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PublishMode {
    /// On a shared channel.
    Shared,
    /// Its exchange is not known yet: one message is a trial for the others.
    First,
    /// Alone, because of the message itself.
    Alone,
}

impl Trust {
    pub(super) fn mode(&self, message: &OutgoingMessage) -> PublishMode {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_forbidden = !state.forbidden.is_empty()
            && state.forbidden.contains(&(message.exchange.to_string(), message.key.to_string()));
        if is_forbidden || state.is_long(message) || message.size() > state.size {
            PublishMode::Alone
        } else if state.exchanges.contains(message.exchange.as_str()) {
            PublishMode::Shared
        } else {
            PublishMode::First
        }
    }

    /// The broker accepted the message.
    pub(super) fn passed(&self, message: &OutgoingMessage) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.size = state.size.max(message.size());
        if !state.forbidden.is_empty() {
            state.forbidden.remove(&(message.exchange.to_string(), message.key.to_string()));
        }
        let (exchange, key) = (message.exchange.as_str(), message.key.as_str());
        state.long.retain(|begin| !is_long_key(begin, exchange, key));
        state.trust(exchange);
    }

    /// The broker closed a channel for a key of this exchange: its right to the exchange was asked for before.
    pub(super) fn has_exchange(&self, exchange: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).trust(exchange);
    }

    /// The broker closed a channel for this.
    pub(super) fn ended(&self, cause: &Cause) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match cause {
            Cause::Exchange(exchange) => {
                state.exchanges.remove(exchange);
            }
            Cause::Key { exchange, key } => {
                // The right to the exchange is asked for before that to the key.
                state.trust(exchange);
                if state.forbidden.len() >= KEYS_MAX {
                    state.forbidden.clear();
                }
                state.forbidden.insert((exchange.clone(), key.clone()));
            }
            Cause::LongKey { begin } => {
                if state.long.len() >= LONG_KEYS_MAX {
                    state.long.clear();
                }
                if !state.long.contains(begin) {
                    state.long.push(begin.clone());
                }
            }
            Cause::Size { max, .. } => state.size = state.size.min(*max),
            Cause::Other => {}
        }
    }
}

impl TrustState {
    fn is_long(&self, message: &OutgoingMessage) -> bool {
        self.long.iter().any(|begin| is_long_key(begin, message.exchange.as_str(), message.key.as_str()))
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
