//! An entry of the index as Redis has it: one string, which sorts as a lane gives its messages out.

use duly_core::{MessageId, Timestamp};

use crate::{shared::claim_order::ClaimOrder, sql::IndexEntry};

/// Lane 8, ready 6, rank 1, id, 0, version 8, lost 1.
const BEFORE_ID: usize = 15;
const BEHIND_ID: usize = 10;

/// Writes an entry.
pub(super) fn write(entry: &IndexEntry) -> Vec<u8> {
    let ClaimOrder { ready, rank, id, lost } = &entry.candidate;
    let mut member = lane(entry.lane_no).to_vec();
    member.extend_from_slice(&ready.as_millis().to_be_bytes()[2..]);
    member.push(*rank);
    member.extend_from_slice(id.as_str().as_bytes());
    member.push(0);
    member.extend_from_slice(&entry.version.to_be_bytes());
    member.push(u8::from(*lost));
    member
}

/// Reads [`write`] back.
pub(super) fn read(member: &[u8], shard: u16) -> Option<IndexEntry> {
    let number = |part: &[u8]| part.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
    let (head, rest) = member.split_at_checked(BEFORE_ID)?;
    let (id, tail) = rest.split_at_checked(rest.len().checked_sub(BEHIND_ID)?)?;
    let candidate = ClaimOrder {
        ready: Timestamp::from_millis(number(&head[8..14])),
        rank: head[14],
        id: MessageId::parse(std::str::from_utf8(id).ok()?).ok()?,
        lost: tail[9] != 0,
    };
    Some(IndexEntry {
        lane_no: number(&head[..8]) as i64,
        shard,
        candidate,
        version: number(&tail[1..9]) as i64,
    })
}

/// What all entries of a lane begin with.
pub(super) fn lane(lane_no: i64) -> [u8; 8] {
    lane_no.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(lane_no: i64, ready: u64, rank: u8, id: &str, version: i64) -> IndexEntry {
        let candidate = ClaimOrder {
            ready: Timestamp::from_millis(ready),
            rank,
            id: id.parse().unwrap(),
            lost: version == 2,
        };
        IndexEntry { lane_no, shard: 3, candidate, version }
    }

    #[test]
    fn entries_read_back_and_rubbish_does_not() {
        for whole in [entry(1, 0, 0, "a", 0), entry(i64::MAX, 1 << 47, 9, "order:42", 2)] {
            let member = write(&whole);
            assert_eq!(read(&member, 3), Some(whole));
            assert_eq!(read(&member[..24], 3), None);
        }
    }

    #[test]
    fn entries_sort_by_lane_time_rank_and_id() {
        let sorted = [
            entry(1, 5, 3, "b", 9),
            entry(1, 6, 2, "z", 0),
            entry(1, 6, 4, "a", 7),
            entry(1, 6, 4, "aa", 1),
            entry(2, 0, 0, "a", 0),
        ];
        assert!(sorted.map(|entry| write(&entry)).is_sorted());
    }
}
