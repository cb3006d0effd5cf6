//! Every name in Redis. A shard's keys carry its hash tag, so that they live in one slot.

use duly_core::{MessageId, Timestamp};

use crate::shared::claim_order::ClaimOrder;

/// The keys of one shard, in the order in which `prelude.lua` takes them.
const OF_SHARD: [&str; 13] = [
    "meta", "msg", "wait", "soonest", "claim", "lease", "ended", "dead", "retried", "count", "minute",
    "hour", "owner",
];

/// Longer names of lanes are hashed in the members of `wait`, so that a message costs the same in every lane.
const LANE_MAX: usize = 14;

/// The names of one store.
#[derive(Debug)]
pub(super) struct Keys {
    shards: Vec<[String; OF_SHARD.len()]>,
    /// Hash: format, generation, number of shards.
    pub(super) store: String,
    /// Set: the lanes that an operator paused.
    pub(super) paused: String,
    /// Channel: something is due soon.
    pub(super) hints: String,
    /// Hash: the status of each node by instance.
    pub(super) nodes: String,
    /// Sorted set: until when each node counts as alive.
    pub(super) alive: String,
    /// String: written before replicas are waited for. It has no other use.
    pub(super) mark: String,
}

impl Keys {
    pub(super) fn new(prefix: &str, shards: u16) -> Self {
        let of_shard = |shard| OF_SHARD.map(|name| format!("duly:{{{prefix}:{shard}}}:{name}"));
        Self {
            shards: (0..shards).map(of_shard).collect(),
            store: format!("duly:{{{prefix}}}:store"),
            paused: format!("duly:{{{prefix}}}:paused"),
            hints: format!("duly:{{{prefix}}}:hints"),
            nodes: format!("duly:{{{prefix}}}:nodes"),
            alive: format!("duly:{{{prefix}}}:alive"),
            mark: format!("duly:{{{prefix}}}:mark"),
        }
    }

    pub(super) fn shards(&self) -> u16 {
        self.shards.len() as u16
    }

    /// The shard of a message: the hash of its id and nothing else.
    pub(super) fn shard_of(&self, id: &MessageId) -> u16 {
        (id.hash64() % self.shards.len() as u64) as u16
    }

    pub(super) fn of(&self, shard: u16) -> &[String] {
        &self.shards[usize::from(shard)]
    }

    pub(super) fn one(&self, shard: u16, name: &str) -> &str {
        let index = OF_SHARD.iter().position(|known| *known == name).unwrap_or_default();
        &self.shards[usize::from(shard)][index]
    }
}

/// The lane's part of a member of `wait`, as `tag` of `prelude.lua` makes it. No tag begins another: names have no
/// control characters.
pub(super) fn tag(lane: &str) -> Vec<u8> {
    let mut tag = Vec::with_capacity(LANE_MAX + 1);
    if lane.len() <= LANE_MAX {
        tag.extend_from_slice(lane.as_bytes());
        tag.push(0);
    } else {
        tag.push(1);
        tag.extend_from_slice(&sha1_smol::Sha1::from(lane).digest().bytes()[..LANE_MAX]);
    }
    tag
}

/// A time as it sorts.
pub(super) fn six(time: Timestamp) -> [u8; 6] {
    let [_, _, six @ ..] = time.as_millis().to_be_bytes();
    six
}

/// Reads [`six`] back.
pub(super) fn time(bytes: &[u8]) -> Option<Timestamp> {
    let six: [u8; 6] = bytes.get(..6)?.try_into().ok()?;
    let [a, b, c, d, e, f] = six;
    Some(Timestamp::from_millis(u64::from_be_bytes([0, 0, a, b, c, d, e, f])))
}

/// Reads a member of `wait` of a lane whose tag has `tag_len` bytes.
pub(super) fn read_claim_order(member: &[u8], tag_len: usize) -> Option<ClaimOrder> {
    let rest = member.get(tag_len..)?;
    let (rank, id) = rest.get(6..)?.split_first()?;
    let (marks, id) = match id.split_last()? {
        (marks, id) if *marks < b' ' => (*marks, id),
        _ => (0, id),
    };
    let id = MessageId::parse(std::str::from_utf8(id).ok()?).ok()?;
    Some(ClaimOrder { ready: time(rest)?, rank: *rank, id, lost: marks & 1 == 1 })
}

/// What `move.lua` returns of those it moved: the number of the stream from 1, and the member of `wait`.
pub(super) fn stream_members(mut bytes: &[u8]) -> Option<Vec<(usize, &[u8])>> {
    let mut members = Vec::new();
    while let [stream, len, rest @ ..] = bytes {
        let (member, rest) = rest.split_at_checked(usize::from(*len))?;
        members.push((usize::from(*stream), member));
        bytes = rest;
    }
    bytes.is_empty().then_some(members)
}

/// What a member of `ended` stands for, as far as it is in that state: due time and id.
pub(super) fn ended_positions(member: &[u8], state: u8) -> Vec<Vec<u8>> {
    /// As `prelude.lua` marks those that were moved together.
    const BATCH: u8 = 16;
    match member {
        [first, position @ ..] if *first == state => vec![position.to_vec()],
        [first, tag_len, _, rest @ ..] if *first == BATCH + state => {
            // Ready when they were due: between the two lies only the rank.
            let position = |(_, member): (usize, &[u8])| {
                let (due, id) = member.get(usize::from(*tag_len)..)?.split_at_checked(6)?;
                Some([due, id.get(1..)?].concat())
            };
            stream_members(rest).unwrap_or_default().into_iter().filter_map(position).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shards_keys_share_one_hash_tag() {
        let keys = Keys::new("main", 16);
        assert!(keys.of(3).iter().all(|key| key.starts_with("duly:{main:3}:")));
        assert_eq!(keys.one(3, "lease"), "duly:{main:3}:lease");
    }

    #[test]
    fn no_tag_begins_another() {
        let names = ["qa", "qab", "q0123456789012", "q01234567890123", "s01234567890123", "sa"];
        let tags = names.map(tag);
        for (index, one) in tags.iter().enumerate() {
            for (other_index, other) in tags.iter().enumerate() {
                assert!(index == other_index || !other.starts_with(one), "{one:?} begins {other:?}");
            }
            assert!(one.len() <= LANE_MAX + 1);
        }
    }

    #[test]
    fn the_claim_order_reads_back_with_its_marks() {
        let member = [&b"qwork\0"[..], &[0, 0, 0, 0, 1, 2], &[5], b"a-1", &[3]].concat();
        let candidate = read_claim_order(&member, 6).unwrap();
        assert_eq!((candidate.ready.as_millis(), candidate.rank, candidate.id.as_str()), (258, 5, "a-1"));
        assert!(candidate.lost);
        assert!(!read_claim_order(&member[..member.len() - 1], 6).unwrap().lost);
    }
}
