//! When the certificate ends. The one date is read from it by hand: that needs no more than a walk over six fields.

use jiff::{Timestamp, civil::DateTime, tz::Offset};

use super::{super::clock, Finding};
use duly_server::config::TlsFiles;

const CHECK: &str = "certificate";
const DAY_MS: u64 = 86_400_000;
const WARN_DAYS: u64 = 14;

pub(super) fn check(files: &TlsFiles) -> Finding {
    let chain = match files.chain() {
        Ok(chain) => chain,
        Err(fault) => return Finding::fail(CHECK, fault.to_string(), "mend the file"),
    };
    judge(chain.first().and_then(|certificate| end_ms(certificate)), clock::now_ms())
}

fn judge(end: Option<u64>, now: u64) -> Finding {
    let remedy = "renew it, and start the server anew";
    match end {
        None => Finding::warn(CHECK, "it does not say when it ends in a way that can be read here", remedy),
        Some(end) if end <= now => {
            Finding::fail(CHECK, format!("it ended {} ago", clock::span(now - end)), remedy)
        }
        Some(end) if end - now < WARN_DAYS * DAY_MS => {
            Finding::warn(CHECK, format!("it ends in {}", clock::span(end - now)), remedy)
        }
        Some(end) => Finding::ok(CHECK, format!("it ends in {}", clock::span(end - now))),
    }
}

/// The end of a certificate's validity, in milliseconds since 1970.
fn end_ms(certificate: &[u8]) -> Option<u64> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let (_, whole, _) = field(certificate).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (_, mut rest, _) = field(whole).filter(|(tag, ..)| *tag == SEQUENCE)?;
    if let Some((VERSION, _, after)) = field(rest) {
        rest = after;
    }
    // The serial number, the algorithm and the issuer stand before the validity.
    for _ in 0..3 {
        (_, _, rest) = field(rest)?;
    }
    let (_, validity, _) = field(rest).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let (_, _, after_begin) = field(validity)?;
    let (tag, end, _) = field(after_begin)?;
    time_ms(tag, std::str::from_utf8(end).ok()?)
}

/// One DER field: its tag, its content, and what follows.
fn field(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (len, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
        }
        _ => return None,
    };
    let (content, after) = rest.split_at_checked(len)?;
    Some((tag, content, after))
}

/// `YYMMDDhhmmssZ` (tag 0x17, 1950 to 2049) or `YYYYMMDDhhmmssZ` (tag 0x18).
fn time_ms(tag: u8, text: &str) -> Option<u64> {
    let digits = text.strip_suffix('Z')?;
    let full = match (tag, digits.len()) {
        (0x17, 12) if digits < "50" => format!("20{digits}"),
        (0x17, 12) => format!("19{digits}"),
        (0x18, 14) => digits.to_owned(),
        _ => return None,
    };
    let time: Timestamp = Offset::UTC.to_timestamp(DateTime::strptime("%Y%m%d%H%M%S", full).ok()?).ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    fn ending(year: i32) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 11, 15);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_end_is_read_in_both_forms_that_certificates_use() {
        let millis = |text: &str| u64::try_from(text.parse::<Timestamp>().unwrap().as_millisecond()).unwrap();
        assert_eq!(end_ms(&ending(2026)), Some(millis("2026-11-15T00:00:00Z")));
        assert_eq!(end_ms(&ending(2075)), Some(millis("2075-11-15T00:00:00Z")));
    }

    #[test]
    fn a_torn_certificate_has_no_end_and_does_no_harm() {
        let whole = ending(2026);
        for len in 0..whole.len().min(120) {
            assert_eq!(end_ms(&whole[..len]), None);
        }
        assert_eq!(judge(None, 0).state, Severity::Warn);
    }

    #[test]
    fn an_ended_certificate_fails_and_one_near_its_end_warns() {
        let now = 1_800_000_000_000;
        assert_eq!(judge(Some(now - 1), now).state, Severity::Fail);
        assert_eq!(judge(Some(now + 3 * DAY_MS), now).state, Severity::Warn);
        assert_eq!(judge(Some(now + 90 * DAY_MS), now).state, Severity::Ok);
    }
}
