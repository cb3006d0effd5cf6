//! Claimed messages: leases and tokens.

use std::collections::{BTreeMap, HashMap};

use duly_core::{MessageId, Monotonic, Timestamp, store::Holder};

use super::{index::Position, number_hasher::NumberHasher};

/// Bytes of a head that stay in memory while its message is claimed. A larger head is read again when the message was delivered.
const HEAD_BYTES_MAX: usize = 512;

/// Why a claim is lost if it is not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Its lease ends.
    Lease,
    /// The process that held it has ended; this message may be the cause.
    Process,
    /// The process that held it has ended; another message is known to be the cause.
    ProcessByOther,
}

/// One claimed message.
#[derive(Debug, Clone)]
pub(super) struct ClaimedMessage {
    pub(super) id: MessageId,
    pub(super) hash: u64,
    pub(super) position: Position,
    pub(super) lane: u32,
    pub(super) ready: Timestamp,
    pub(super) version: u64,
    pub(super) holder: Holder,
    /// Claimed alone because its last claim was lost.
    pub(super) alone: bool,
    /// All that a client claimed: nothing else can be why it is lost.
    pub(super) only: bool,
    pub(super) lease_end: Monotonic,
    /// How the claim ends if it is not settled.
    pub(super) loss: Loss,
    /// The head of its entry, which is kept once it is delivered; empty if it is too large to stay in memory until then.
    pub(super) head: Box<[u8]>,
    /// Bytes of its entry.
    pub(super) bytes: u32,
    /// Its order among messages released at the same time: from its priority.
    pub(super) rank: u8,
}

impl ClaimedMessage {
    /// The fields of a claimed message's head that are kept in memory.
    pub(super) fn remembered(head: &[u8]) -> Box<[u8]> {
        if head.len() <= HEAD_BYTES_MAX { head.into() } else { Box::default() }
    }
}

/// Claims whose leases end together: when, and the first of their tokens. The tokens are consecutive.
type Group = (Monotonic, u64);

/// The group of a claim that was [met](InFlight::ended). No token is zero.
const NO_GROUP: Group = (Monotonic::from_micros(0), 0);

/// How many tokens a group has, and how many of them are still claimed under it.
struct Members {
    count: u64,
    held: u64,
}

/// All claimed messages by their token, and the logs that name them on disk.
///
/// Invariants:
/// - Tokens only grow; none is used twice.
/// - Each claim belongs to the group of the instant at which its lease is checked, or to none after it was [met](Self::ended). A group
///   has at least one claim: there are never more groups than claims, however long the leases are.
#[derive(Default)]
pub(super) struct InFlight {
    held: HashMap<u64, (ClaimedMessage, Group), NumberHasher>,
    /// When leases end, one group per call of `claim`. A renewed claim leaves its group for one of its own.
    ends: BTreeMap<Group, Members>,
    last_token: u64,
    /// The numbers of the claims logs on disk. A checkpoint deletes all but the one that it begins.
    logs: Vec<u32>,
    /// The log that the manifest names was missing when the store was opened.
    is_log_missing: bool,
}

impl InFlight {
    /// Nothing is claimed; these logs are on disk.
    pub(super) fn new(logs: Vec<u32>) -> Self {
        Self { logs, ..Self::default() }
    }

    /// Every token from now on is larger than `last`.
    pub(super) fn start_after(&mut self, last: u64) {
        self.last_token = last;
    }

    /// The numbers of the claims logs on disk.
    pub(super) fn logs(&self) -> &[u32] {
        &self.logs
    }

    /// A claims log was begun.
    pub(super) fn add_log(&mut self, number: u32) {
        self.logs.push(number);
    }

    /// The log that the manifest names is missing.
    pub(super) fn note_missing_log(&mut self) {
        self.is_log_missing = true;
    }

    pub(super) fn is_log_missing(&self) -> bool {
        self.is_log_missing
    }

    /// These logs are not needed any more.
    pub(super) fn remove_logs(&mut self, old: &[u32]) {
        self.logs.retain(|number| !old.contains(number));
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Takes a token, larger than every one before.
    pub(super) fn token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    /// Adds claims whose leases end together. Their tokens are consecutive.
    pub(super) fn hold(&mut self, end: Monotonic, claims: Vec<(u64, ClaimedMessage)>) {
        let Some((first, _)) = claims.first() else { return };
        let group = (end, *first);
        let count = claims.len() as u64;
        self.ends.insert(group, Members { count, held: count });
        self.held.extend(claims.into_iter().map(|(token, held)| (token, (held, group))));
    }

    pub(super) fn get(&self, token: u64, id: &MessageId) -> Option<&ClaimedMessage> {
        self.held.get(&token).map(|(held, _)| held).filter(|held| held.id == *id)
    }

    /// The claim, if its lease has not ended at `now`.
    pub(super) fn valid(&self, token: u64, id: &MessageId, now: Monotonic) -> Option<&ClaimedMessage> {
        self.get(token, id).filter(|held| held.lease_end > now)
    }

    pub(super) fn take(&mut self, token: u64) -> Option<ClaimedMessage> {
        let (held, group) = self.held.remove(&token)?;
        self.leave_group(group);
        Some(held)
    }

    /// One claim of a group is no longer under it.
    fn leave_group(&mut self, group: Group) {
        if let Some(members) = self.ends.get_mut(&group) {
            members.held = members.held.saturating_sub(1);
            if members.held == 0 {
                self.ends.remove(&group);
            }
        }
    }

    pub(super) fn get_mut(&mut self, token: u64) -> Option<&mut ClaimedMessage> {
        self.held.get_mut(&token).map(|(held, _)| held)
    }

    /// A claimed message was moved. Only a claim that outlived a restart can be in a bucket, so this is rare.
    pub(super) fn moved(&mut self, from: Position, to: Position) {
        if let Some((held, _)) = self.held.values_mut().find(|(held, _)| held.position == from) {
            held.position = to;
        }
    }

    pub(super) fn extend(&mut self, token: u64, end: Monotonic) {
        if let Some(held) = self.get_mut(token) {
            held.lease_end = end;
            self.recheck_at(token, end);
        }
    }

    /// Up to `limit` claims whose lease has ended by `now`, and the rest of the last group of them. Each claim is returned once. A
    /// caller that cannot end a claim now calls [`recheck_now`](Self::recheck_now) or [`recheck_at`](Self::recheck_at).
    pub(super) fn ended(&mut self, now: Monotonic, limit: usize) -> Vec<u64> {
        let mut ended = Vec::new();
        while ended.len() < limit {
            let Some(entry) = self.ends.first_entry().filter(|entry| entry.key().0 <= now) else { break };
            let (group, members) = entry.remove_entry();
            for token in group.1..group.1 + members.count {
                if let Some((_, under)) = self.held.get_mut(&token).filter(|(_, under)| *under == group) {
                    *under = NO_GROUP;
                    ended.push(token);
                }
            }
        }
        ended
    }

    /// Returns the claim from [`ended`](Self::ended) at `at`, and not before.
    pub(super) fn recheck_at(&mut self, token: u64, at: Monotonic) {
        let Some((_, group)) = self.held.get_mut(&token) else { return };
        let left = std::mem::replace(group, (at, token));
        if left == (at, token) {
            return;
        }
        self.leave_group(left);
        // The group that it was claimed in may stand under the same key, if it was renewed twice.
        let known = self.ends.entry((at, token)).or_insert(Members { count: 1, held: 0 });
        known.held += 1;
    }

    /// The claim could not be ended at `now`. [`ended`](Self::ended) returns it again at once, or at the end of its lease if its holder has
    /// extended it meanwhile.
    pub(super) fn recheck_now(&mut self, token: u64, now: Monotonic) {
        if let Some(end) = self.get_mut(token).map(|held| held.lease_end) {
            self.recheck_at(token, end.max(now));
        }
    }

    pub(super) fn next_end(&self) -> Option<Monotonic> {
        self.ends.first_key_value().map(|((end, _), _)| *end)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &ClaimedMessage)> {
        self.held.iter().map(|(token, (held, _))| (*token, held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_micros(seconds * 1_000_000)
    }

    fn claim(flight: &mut InFlight, count: usize, end: Monotonic) -> Vec<u64> {
        let id = MessageId::parse("a").unwrap();
        let claims: Vec<(u64, ClaimedMessage)> = (0..count)
            .map(|_| {
                let held = ClaimedMessage {
                    id: id.clone(),
                    hash: 1,
                    position: Position { file: 1, off8: 1 },
                    lane: 0,
                    ready: Timestamp::default(),
                    version: 1,
                    holder: Holder::Client,
                    alone: false,
                    only: false,
                    lease_end: end,
                    loss: Loss::Lease,
                    head: Box::default(),
                    bytes: 0,
                    rank: 0,
                };
                (flight.token(), held)
            })
            .collect();
        let tokens = claims.iter().map(|(token, _)| *token).collect();
        flight.hold(end, claims);
        tokens
    }

    #[test]
    fn a_settled_claim_leaves_nothing_behind_until_its_lease_would_have_ended() {
        let mut flight = InFlight::default();
        for _ in 0..1_000 {
            for token in claim(&mut flight, 3, at(12 * 3600)) {
                flight.extend(token, at(13 * 3600));
                flight.take(token);
            }
        }
        assert_eq!((flight.len(), flight.ends.len()), (0, 0));
        // One that is still claimed keeps one record, whatever became of the others, and however often it is renewed.
        let tokens = claim(&mut flight, 100, at(60));
        tokens[1..].iter().for_each(|token| drop(flight.take(*token)));
        (0..50).for_each(|more| flight.extend(tokens[0], at(100 + more)));
        assert_eq!((flight.len(), flight.ends.len()), (1, 1));
        assert_eq!(flight.next_end(), Some(at(149)));
    }

    #[test]
    fn every_claim_is_met_once_when_its_lease_ends() {
        let mut flight = InFlight::default();
        let tokens = claim(&mut flight, 4, at(60));
        flight.take(tokens[1]);
        flight.extend(tokens[2], at(90));
        // Renewed, and back to the instant at which the others end.
        flight.extend(tokens[0], at(70));
        flight.extend(tokens[0], at(60));
        assert!(flight.ended(at(59), 10).is_empty());
        assert_eq!(flight.ended(at(60), 10), [tokens[0], tokens[3]]);
        assert!(flight.ended(at(60), 10).is_empty());
        flight.recheck_at(tokens[3], at(61));
        assert_eq!(flight.ended(at(90), 10), [tokens[3], tokens[2]]);
    }
}
