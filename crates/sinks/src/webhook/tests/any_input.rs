//! Input of any kind, drawn from a seed: nothing panics, and what is let through is what it should be.

use duly_core::{Body, Delivery, StoredMessage, Timestamp, Topic};
use http::HeaderMap;
use url::Url;

use crate::webhook::{
    endpoint::{UrlSource, endpoint_of},
    headers::{Credentials, headers},
    pattern::Pattern,
    sign::Key,
};

const ROUNDS: usize = 40_000;

/// The pieces from which tricks are made.
const PIECES: &[&str] = &[
    "http://",
    "https://",
    "HTTPS:/",
    "//",
    "/",
    "\\",
    "@",
    ":",
    "?",
    "#",
    "%",
    "%2e",
    "%2f",
    "%5c",
    "%00",
    "..",
    ".",
    ";",
    "good.com",
    "evil.com",
    "hooks",
    "*",
    "127.0.0.1",
    "[::1]",
    "[",
    "]",
    "0x7f",
    "443",
    "99999",
    " ",
    "\t",
    "a",
    "ü",
    "。",
    "\u{202e}",
    "xn--",
    "-",
    "~",
    "&",
    "=",
    "+",
    ",",
    "\"",
    "'",
    "<",
    ">",
    "^",
    "`",
    "{",
    "|",
    "}",
    "$",
    "(",
    ")",
    "!",
];

struct Draw(u64);

impl Draw {
    fn next(&mut self, below: usize) -> usize {
        // SplitMix64: short, and the same on every machine.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as usize % below
    }

    fn text(&mut self, pieces: usize) -> String {
        (0..=self.next(pieces)).map(|_| PIECES[self.next(PIECES.len())]).collect()
    }
}

#[test]
fn no_topic_leads_anywhere_but_below_the_base_or_where_a_pattern_allows() {
    let base = Url::parse("https://good.com/hooks/base?key=1").unwrap();
    let allowed = [Pattern::parse("https://good.com/hooks/*").unwrap()];
    let mut draw = Draw(42);
    let (mut below, mut whole) = (0, 0);
    for _ in 0..ROUNDS {
        let mut text = draw.text(10);
        if draw.next(3) == 0 {
            text.insert_str(0, "https://good.com/hooks/");
        }
        let Ok(topic) = Topic::parse(&text) else { continue };
        let Ok(endpoint) = endpoint_of(topic.as_str(), Some(&base), &allowed) else { continue };
        // Judged by the parser that a browser would use, on the text that goes out.
        let url = Url::parse(&endpoint.uri.to_string()).unwrap();
        assert_eq!((url.scheme(), url.host_str(), url.port()), ("https", Some("good.com"), None), "{text:?}");
        assert_eq!((url.username(), url.password()), ("", None), "{text:?}");
        let decoded =
            url.path().to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/");
        assert!(!decoded.split('/').any(|segment| segment == ".."), "{text:?} became {url}");
        if endpoint.source == UrlSource::Config {
            below += 1;
            assert!(
                url.path() == "/hooks/base" || url.path().starts_with("/hooks/base/"),
                "{text:?} became {url}"
            );
            assert_eq!(url.query(), Some("key=1"), "{text:?}");
        } else {
            whole += 1;
            assert!(url.path().starts_with("/hooks/"), "{text:?} became {url}");
        }
    }
    assert!(below > 1000 && whole > 1000, "both ways were tried: {below}, {whole}");
}

#[test]
fn no_pattern_panics_and_none_crosses_its_host() {
    let mut draw = Draw(7);
    let mut read = 0;
    for _ in 0..ROUNDS {
        let text = format!("https://good.com{}", draw.text(6));
        let Ok(pattern) = Pattern::parse(&text) else { continue };
        read += 1;
        for url in ["https://evil.com/hooks", "https://evil.com/good.com", "https://good.com.evil.net/"] {
            let host = text.trim_start_matches("https://").split(['/', ':']).next().unwrap_or_default();
            let matched = pattern.matches(&Url::parse(url).unwrap());
            assert!(!matched || url.contains(host), "{text:?} matched {url}");
        }
    }
    assert!(read > 1000, "{read} patterns were read");
}

#[test]
fn no_property_panics_or_breaks_out_of_its_header() {
    const LETTERS: &[char] = &[
        'a', 'B', '-', '_', ':', ' ', '\r', '\n', '\0', '\t', '\u{7f}', '\u{85}', 'é', '🐢', '(', '"', '%',
        ',', ';',
    ];
    let keys = [Key::parse("words").unwrap()];
    let mut draw = Draw(99);
    let mut taken = 0;
    for round in 0..ROUNDS {
        let mut word = |most: usize| -> String {
            (0..=draw.next(most)).map(|_| LETTERS[draw.next(LETTERS.len())]).collect()
        };
        let mut message = StoredMessage::new(
            format!("m-{round}").parse().unwrap(),
            "hooks".parse().unwrap(),
            "t".parse().unwrap(),
            Timestamp::from_millis(1),
        );
        let (name, value) = (word(3), word(12));
        // As a store would give it back, unchecked: the last line of defence is here.
        message.properties.put(&name, &value);
        message.body = Body::text(word(5));
        let delivery = Delivery::new(message, 1);
        match headers(&delivery, &Credentials::of(&HeaderMap::new(), &keys), 1) {
            Err(fault) => assert_eq!(fault.code, "bad_property"),
            Ok(map) => {
                taken += 1;
                assert_eq!(map.get(name.as_str()).unwrap().as_bytes(), value.as_bytes());
                let breaks = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0);
                assert!(!map.values().any(|value| value.as_bytes().iter().any(breaks)));
                assert_eq!(map.len(), 10, "nothing else was set by {name:?}");
            }
        }
    }
    assert!(taken > 500, "{taken} were taken");
}

#[test]
fn headers_of_the_connection_and_of_duly_are_refused_whatever_their_case() {
    for name in [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "CONNECTION",
        "te",
        "upgrade",
        "Keep-Alive",
        "trailer",
        "expect",
        "proxy-authorization",
        "webhook-id",
        "Webhook-Signature",
        "duly-id",
        "a b",
        "a(b",
        "ü",
        "",
    ] {
        let mut message = StoredMessage::new(
            "m".parse().unwrap(),
            "hooks".parse().unwrap(),
            "t".parse().unwrap(),
            Timestamp::from_millis(1),
        );
        message.properties.put(name, "x");
        let fault =
            headers(&Delivery::new(message, 1), &Credentials::of(&HeaderMap::new(), &[]), 1).unwrap_err();
        assert_eq!((fault.code.as_str(), fault.path), ("bad_property", format!("properties.{name}")));
    }
}
