//! Signatures the Standard-Webhooks way: <https://www.standardwebhooks.com>.

use std::fmt;

use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// How the standard marks a secret that is written in base 64.
pub(super) const PREFIX: &str = "whsec_";

/// A secret, ready to sign with.
#[derive(Clone)]
pub(super) struct Key(Hmac<Sha256>);

impl Key {
    /// Reads `whsec_<base64>`; any other text is the key as it is.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let bytes = match text.strip_prefix(PREFIX) {
            Some(coded) => BASE64_STANDARD.decode(coded).map_err(|_| "what follows whsec_ is not base 64")?,
            None => text.as_bytes().to_vec(),
        };
        if bytes.is_empty() {
            return Err("a secret is not empty: everybody could sign with it");
        }
        Hmac::new_from_slice(&bytes).map(Self).map_err(|_| "the secret has no length that can be used")
    }

    /// The key of one address that a message named: HMAC-SHA256 of the address by the secret.
    ///
    /// Whoever receives at one such address cannot sign for another, nor for the sink's own: a signature by this key is good
    /// for this address alone.
    fn of_url(&self, url: &str) -> Self {
        let derived = self.0.clone().chain_update(url.as_bytes()).finalize().into_bytes();
        // A key of HMAC may have any length, so there is no error to tell of.
        Hmac::new_from_slice(&derived).map_or_else(|_| self.clone(), Self)
    }

    /// `v1,<base64>` over the id, the time and the body.
    fn sign(&self, id: &str, seconds: u64, body: &[u8]) -> String {
        let mut mac = self.0.clone();
        mac.update(format!("{id}.{seconds}.").as_bytes());
        mac.update(body);
        format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The signatures of all keys, so that receivers can be moved from one to the next. `None` without a key.
pub(super) fn signature(keys: &[Key], id: &str, seconds: u64, body: &[u8]) -> Option<String> {
    let all: Vec<_> = keys.iter().map(|key| key.sign(id, seconds, body)).collect();
    (!all.is_empty()).then(|| all.join(" "))
}

/// The keys for an address that a message named.
pub(super) fn keys_of_url(keys: &[Key], url: &str) -> Vec<Key> {
    keys.iter().map(|key| key.of_url(url)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_example_is_signed_the_published_way() {
        let key = Key::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signed = signature(&[key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed.as_deref(), Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
    }

    /// HMAC written out by its definition, so that the library is not compared with itself.
    fn by_hand(key: &[u8], text: &[u8]) -> String {
        use sha2::Digest;
        let mut block = [0u8; 64];
        block[..key.len()].copy_from_slice(key);
        let inner = Sha256::new().chain_update(block.map(|b| b ^ 0x36)).chain_update(text).finalize();
        let outer = Sha256::new().chain_update(block.map(|b| b ^ 0x5c)).chain_update(inner).finalize();
        format!("v1,{}", BASE64_STANDARD.encode(outer))
    }

    #[test]
    fn several_secrets_give_a_signature_each() {
        let keys = [Key::parse("plain words").unwrap(), Key::parse("whsec_AAECAwQFBgc=").unwrap()];
        let text = b"order-42.1767225600.\x00\xffbody";
        let want = format!("{} {}", by_hand(b"plain words", text), by_hand(&[0, 1, 2, 3, 4, 5, 6, 7], text));
        assert_eq!(signature(&keys, "order-42", 1_767_225_600, b"\x00\xffbody"), Some(want));
        assert_eq!(signature(&[], "order-42", 1, b""), None);
    }

    #[test]
    fn a_secret_that_protects_nothing_is_refused() {
        for bad in ["", "whsec_", "whsec_not base 64", "whsec_AAEC AwQ="] {
            assert!(Key::parse(bad).is_err(), "{bad}");
        }
    }
}
