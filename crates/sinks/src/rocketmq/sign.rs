//! How a request proves who sends it.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;

/// A key and its secret.
#[derive(Clone)]
pub(super) struct Signer {
    key: String,
    mac: Option<Hmac<Sha1>>,
}

impl Signer {
    pub(super) fn new(key: &str, secret: &str) -> Self {
        // Any length of a secret will do.
        Self { key: key.into(), mac: Hmac::new_from_slice(secret.as_bytes()).ok() }
    }

    /// Adds the key and the signature of all fields, in order of their names, and of the body.
    pub(super) fn sign(&self, fields: &mut BTreeMap<&'static str, String>, body: &[u8]) {
        fields.insert("AccessKey", self.key.clone());
        let Some(mut mac) = self.mac.clone() else { return };
        for value in fields.values() {
            mac.update(value.as_bytes());
        }
        mac.update(body);
        fields.insert("Signature", STANDARD.encode(mac.finalize().into_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_signed_in_order_of_their_names_and_then_the_body() {
        let mut fields = BTreeMap::from([("topic", "orders".to_owned()), ("a", "b".to_owned())]);
        Signer::new("key", "secret").sign(&mut fields, b"body");
        // HMAC-SHA1 of "keyborders" + "body", by another program.
        assert_eq!(fields["AccessKey"], "key");
        assert_eq!(fields["Signature"], "OF+N1p7VBto7vCzBPIHojvwg1n0=");
    }
}
