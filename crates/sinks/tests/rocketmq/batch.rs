//! The body of a batch, taken apart as `MessageDecoder.decodeMessage` of RocketMQ does it.

use bytes::{Buf, Bytes};

/// The body and the properties of each message.
pub(crate) fn read(batch: &[u8]) -> Vec<(Bytes, String)> {
    let (mut rest, mut all) = (Bytes::copy_from_slice(batch), Vec::new());
    while rest.has_remaining() {
        let mut one = rest.split_to((&rest[..4]).get_u32() as usize);
        // Length, magic number, checksum, flag.
        one.advance(4 + 4 + 4 + 4);
        let length = one.get_u32() as usize;
        let body = one.split_to(length);
        let length = usize::try_from(one.get_i16()).unwrap();
        let properties = String::from_utf8(one.split_to(length).to_vec()).unwrap();
        assert!(one.is_empty(), "the length of a message is that of its parts");
        all.push((body, properties));
    }
    all
}
