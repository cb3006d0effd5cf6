//! The remoting protocol: a request or an answer is a length, a header in JSON, and a body.

use std::{collections::BTreeMap, io};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::sign::Signer;

/// Maximum length of an answer. Routes of the largest clusters are far shorter.
const ANSWER_MAX: usize = 16 * 1024 * 1024;
/// The protocol version of clients of 4.9, which all later brokers accept.
const VERSION: i32 = 400;
/// Set in an answer.
const IS_ANSWER: i32 = 1;

/// The code of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Code {
    Send = 310,
    SendBatch = 320,
    Route = 105,
    Cluster = 106,
    Heartbeat = 34,
    Config = 26,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RequestHeader<'a> {
    code: i32,
    ext_fields: &'a BTreeMap<&'static str, String>,
    flag: i32,
    language: &'static str,
    opaque: i32,
    #[serde(rename = "serializeTypeCurrentRPC")]
    serialize: &'static str,
    version: i32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answered {
    code: i32,
    flag: i32,
    opaque: i32,
    #[serde(default)]
    remark: Option<String>,
    #[serde(default)]
    ext_fields: Option<BTreeMap<String, String>>,
}

/// A response.
#[derive(Debug, Clone)]
pub(super) struct Response {
    pub(super) code: i32,
    pub(super) remark: String,
    pub(super) fields: BTreeMap<String, String>,
    pub(super) body: Bytes,
}

/// Adds a request to `out`. `opaque` is what its answer is known by.
pub(super) fn ask(
    out: &mut BytesMut,
    code: Code,
    opaque: usize,
    mut fields: BTreeMap<&'static str, String>,
    body: &[u8],
    signer: Option<&Signer>,
) {
    if let Some(signer) = signer {
        signer.sign(&mut fields, body);
    }
    let header = RequestHeader {
        code: code as i32,
        ext_fields: &fields,
        flag: 0,
        language: "OTHER",
        opaque: opaque as i32,
        serialize: "JSON",
        version: VERSION,
    };
    // Texts and numbers: there is nothing in it that JSON could not say.
    let header = serde_json::to_vec(&header).unwrap_or_default();
    out.reserve(8 + header.len() + body.len());
    out.put_u32((4 + header.len() + body.len()) as u32);
    // The highest byte says that it is JSON: zero.
    out.put_u32(header.len() as u32);
    out.put_slice(&header);
    out.put_slice(body);
}

/// Takes the next answer from the front of `read`, if all of it is there, with what it is known by.
pub(super) fn next(read: &mut BytesMut) -> io::Result<Option<(usize, Response)>> {
    loop {
        let Some(mut frame) = whole(read)? else { return Ok(None) };
        let words = frame.get_u32();
        let length = (words & 0x00ff_ffff) as usize;
        if words >> 24 != 0 || length > frame.len() {
            return Err(strange("a header that is no JSON"));
        }
        let header = frame.split_to(length);
        let header: Answered = serde_json::from_slice(&header).map_err(|why| strange(&why.to_string()))?;
        // A request of the broker, which concerns consumers: ignored.
        if header.flag & IS_ANSWER == 0 {
            continue;
        }
        let answer = Response {
            code: header.code,
            remark: header.remark.unwrap_or_default(),
            fields: header.ext_fields.unwrap_or_default(),
            body: frame,
        };
        return Ok(Some((usize::try_from(header.opaque).unwrap_or(usize::MAX), answer)));
    }
}

/// A frame without its length.
fn whole(read: &mut BytesMut) -> io::Result<Option<Bytes>> {
    let Some(length) = read.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if !(4..=ANSWER_MAX).contains(&length) {
        return Err(strange("a length that cannot be"));
    }
    if read.len() < 4 + length {
        return Ok(None);
    }
    read.advance(4);
    Ok(Some(read.split_to(length).freeze()))
}

fn strange(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("this is no RocketMQ: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_when_all_of_it_is_there_and_requests_are_passed_over() {
        let mut wire = BytesMut::new();
        ask(&mut wire, Code::Route, 7, BTreeMap::from([("topic", "orders".into())]), b"", None);
        let header =
            br#"{"code":0,"flag":1,"opaque":9,"extFields":{"msgId":"x"},"language":"JAVA","version":1}"#;
        wire.put_u32((4 + header.len() + 4) as u32);
        wire.put_u32(header.len() as u32);
        wire.put_slice(header);
        let mut read = BytesMut::from(&wire[..]);
        assert!(next(&mut read).unwrap().is_none());
        read.put_slice(b"body");
        let (opaque, answer) = next(&mut read).unwrap().unwrap();
        assert_eq!((opaque, answer.code, &answer.body[..]), (9, 0, &b"body"[..]));
        assert_eq!(answer.fields["msgId"], "x");
        assert!(next(&mut read).unwrap().is_none());
    }

    #[test]
    fn what_is_no_answer_is_a_fault_and_not_waited_for() {
        for bytes in [&b"HTTP/1.1 400"[..], &[0, 0, 0, 1, 0], &[0, 0, 0, 8, 1, 0, 0, 2, b'{', b'}', 0, 0]] {
            assert!(next(&mut BytesMut::from(bytes)).is_err(), "{bytes:?}");
        }
    }
}
