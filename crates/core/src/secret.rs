//! Text that must not be shown: passwords, and addresses that may hold one.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// What stands in the place of a secret.
pub const MASK: &str = "***";

/// A value that is used and never shown: neither by `Debug`, nor by `Display`, nor as JSON.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Keeps this to itself.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The same as an address without its password, fit to be shown.
    pub fn shown(&self) -> String {
        mask_url(&self.0)
    }

    /// The value, for whoever needs it and shows it to nobody.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

/// Whether a setting of this name holds a secret. Files are named in the open; what stands in them is not.
pub fn is_secret_name(name: &str) -> bool {
    const WORDS: [&str; 6] = ["secret", "password", "passwd", "token", "credential", "authorization"];
    let name = name.to_ascii_lowercase();
    let holds = WORDS.iter().any(|word| name.contains(word)) || name == "key" || name.ends_with("_key");
    holds && !name.ends_with("_file")
}

/// A URL whose password, and whose parameters that are named like secrets, are hidden; other text as it is.
///
/// A password may hold a slash that somebody forgot to escape, so everything up to the last `@` counts as the user's part.
pub fn mask_url(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.into() };
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    let place = match place.rsplit_once('@') {
        Some((who, host)) => match who.split_once(':') {
            Some((user, _)) => format!("{user}:{MASK}@{host}"),
            None => format!("{MASK}@{host}"),
        },
        None => place.into(),
    };
    let query = query.map(|query| {
        let shown = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name, _)) if is_secret_name(name) => format!("{name}={MASK}"),
            _ => pair.into(),
        });
        format!("?{}", shown.collect::<Vec<_>>().join("&"))
    });
    format!("{scheme}://{place}{}", query.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_itself_in_no_form() {
        let secret = Secret::new("planted");
        let shown = format!("{secret} {secret:?} {}", serde_json::to_string(&secret).unwrap());
        assert_eq!(shown, "*** *** \"***\"");
        assert_eq!(secret.reveal(), "planted");
    }

    #[test]
    fn passwords_in_urls_are_hidden() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("redis://user:planted@host/1", "redis://user:***@host/1"),
            ("redis://:planted@host", "redis://:***@host"),
            ("redis://planted@host", "redis://***@host"),
            ("redis://u:pla/nted@x@host/0", "redis://u:***@host/0"),
            ("redis-cluster://u:planted@a,u:planted@b", "redis-cluster://u:***@b"),
            ("https://h/p?api_key=planted&a=b", "https://h/p?api_key=***&a=b"),
            ("15m", "15m"),
        ] {
            assert_eq!(mask_url(url), shown);
        }
    }

    #[test]
    fn settings_that_hold_secrets_are_known_by_their_names() {
        for name in
            ["secret", "signing_secret", "password", "access_token", "api_key", "key", "Authorization"]
        {
            assert!(is_secret_name(name), "{name}");
        }
        for name in ["url", "timeout", "token_file", "keys", "keyspace"] {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
