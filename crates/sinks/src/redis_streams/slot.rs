//! Which slot of a cluster a key lies in, and how another key comes to lie there too.

use std::sync::LazyLock;

/// The slots of every Redis Cluster.
const SLOTS: u16 = 16_384;

/// A name of a marker that lies in the slot of `stream`, whatever braces the stream's name has in it.
pub(super) fn marker(stream: &str, id: &str) -> String {
    beside(stream, "mark", id)
}

/// The name of what is known of the rights to deliver into `stream`, in the slot of the stream.
pub(super) fn rights(stream: &str) -> String {
    beside(stream, "rights", "")
}

fn beside(stream: &str, what: &str, name: &str) -> String {
    match tag(stream) {
        // Streams share tags; and no name has a slash in it.
        Some(tag) => format!("duly:{what}:{{{tag}}}:{name}/{stream}"),
        // The whole name counts; between braces of ours it would be cut off at a brace of its own.
        None if stream.contains('}') => format!("duly:{what}:{{{}}}:{name}/{stream}", stand_in(slot(stream))),
        None => format!("duly:{what}:{{{stream}}}:{name}"),
    }
}

/// What stands between the first opening brace and the next closing one, unless it is nothing.
fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    rest.split_once('}').map(|(tag, _)| tag).filter(|tag| !tag.is_empty())
}

fn slot(key: &str) -> u16 {
    crc16(tag(key).unwrap_or(key).as_bytes()) % SLOTS
}

/// The smallest number that, as text, lies in `slot`. Found once for all slots: a search takes longer than an append, and every message to
/// a topic with such a name would pay for two.
fn stand_in(slot: u16) -> u32 {
    static STAND_INS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let mut found = vec![None; usize::from(SLOTS)];
        let mut missing = found.len();
        for number in 0u32.. {
            let entry = &mut found[usize::from(crc16(number.to_string().as_bytes()) % SLOTS)];
            if entry.is_none() {
                *entry = Some(number);
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        found.into_iter().flatten().collect()
    });
    STAND_INS[usize::from(slot)]
}

/// CRC-16/XMODEM, as Redis counts its slots.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc: u16, byte| {
        (0..8).fold(
            crc ^ u16::from(*byte) << 8,
            |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slots_are_those_of_redis() {
        // From the specification of Redis Cluster.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot("{foo}bar"), slot("foo"));
        assert_eq!(slot("a{foo}{bar}"), slot("foo"));
        assert_ne!(
            slot("foo{}{bar}"),
            slot("bar"),
            "nothing between the first braces: the whole name counts"
        );
    }

    #[test]
    fn every_slot_has_the_smallest_number_that_lies_in_it() {
        for of in (0..SLOTS).step_by(997) {
            let number = stand_in(of);
            assert_eq!(slot(&number.to_string()), of);
            assert!((0..number).all(|smaller| slot(&smaller.to_string()) != of), "{number}");
        }
        assert!((0..SLOTS).all(|of| slot(&stand_in(of).to_string()) == of));
    }

    #[test]
    fn a_marker_lies_in_the_slot_of_its_stream() {
        for stream in ["orders", "{a}b", "a{b}{c}", "a{}b", "a}b", "}{", "{", "{{a}}", "заказы", "a b:c"]
        {
            let marker = marker(stream, "id-1");
            assert_eq!(slot(&marker), slot(stream), "{stream}: {marker}");
            assert_eq!(slot(&rights(stream)), slot(stream), "{stream}");
        }
    }

    #[test]
    fn markers_of_other_streams_and_ids_are_others() {
        let names = [marker("a}b", "1"), marker("a}c", "1"), marker("a}b", "2"), marker("ab", "1")];
        let names = names.into_iter().chain([marker("{x}a", "1"), marker("{x}b", "1"), marker("x", "1")]);
        let names: Vec<_> = names.collect();
        let all: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(all.len(), names.len());
    }
}
