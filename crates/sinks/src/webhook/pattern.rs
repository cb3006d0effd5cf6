//! Patterns of whole addresses that a topic may be.

use url::{Host, Url};

/// `https://*.example.com/hooks/*`, read once.
///
/// Compared are the parts of the parsed address and never its text, so that no trick of writing moves the border
/// between host and path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    scheme: &'static str,
    host: HostPattern,
    port: PortPattern,
    /// `*` stands for any run of characters; `None` for any path.
    path: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostPattern {
    /// `*`: every host.
    Any,
    /// `*.example.com`: every name below it; kept as `.example.com`.
    Below(String),
    /// Exactly this one.
    Is(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PortPattern {
    Any,
    Is(u16),
}

impl Pattern {
    /// Reads a pattern, or says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let fault = |why: &str| format!("{text:?}: {why}; write https://*.example.com/hooks/*");
        let (scheme, rest) = match text.split_once("://") {
            Some(("https", rest)) => ("https", rest),
            Some(("http", rest)) => ("http", rest),
            _ => return Err(fault("a pattern begins with https:// or http://")),
        };
        if rest.contains(['?', '#', '@', '\\']) || rest.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(fault("a pattern has no ? # @ \\ and no spaces"));
        }
        let (authority, path) = match rest.find('/') {
            Some(slash) => (&rest[..slash], Some(&rest[slash..])),
            None => (rest, None),
        };
        let (host, port) = split_port(authority, scheme).ok_or_else(|| fault("the port is a number or *"))?;
        let host = HostPattern::parse(host).map_err(fault)?;
        let path = match path {
            None => None,
            // The same normal form as the paths it is compared with.
            Some(path) => {
                let url = Url::parse(&format!("http://host{path}"))
                    .map_err(|_| fault("the path cannot be read"))?;
                Some(url.path().to_owned())
            }
        };
        Ok(Self { scheme, host, port, path })
    }

    /// Whether `url` is one of those meant.
    pub(super) fn matches(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        self.scheme == url.scheme()
            && self.host.matches(host)
            && match self.port {
                PortPattern::Any => true,
                PortPattern::Is(port) => url.port_or_known_default() == Some(port),
            }
            && self.path.as_deref().is_none_or(|pattern| like(pattern, url.path()))
    }
}

fn split_port<'a>(authority: &'a str, scheme: &str) -> Option<(&'a str, PortPattern)> {
    let usual = if scheme == "https" { 443 } else { 80 };
    // The colons of an IPv6 address stand inside its brackets.
    let end_of_host = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    match authority[end_of_host..].rfind(':') {
        None => Some((authority, PortPattern::Is(usual))),
        Some(colon) => {
            let (host, port) = (&authority[..end_of_host + colon], &authority[end_of_host + colon + 1..]);
            let port = if port == "*" { PortPattern::Any } else { PortPattern::Is(port.parse().ok()?) };
            Some((host, port))
        }
    }
}

impl HostPattern {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let (name, below) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        // "*example.com" would let in "evilexample.com", and "example.*" anybody.
        if name.contains('*') {
            return Err("in a host, * is the whole of it or its first label");
        }
        let host = Host::parse(name).map_err(|_| "the host cannot be read")?;
        match (host, below) {
            (Host::Domain(name), true) => Ok(Self::Below(format!(".{name}"))),
            (_, true) => Err("an address has no names below it"),
            (host, false) => Ok(Self::Is(host.to_string())),
        }
    }

    fn matches(&self, host: &str) -> bool {
        match self {
            Self::Any => !host.is_empty(),
            Self::Below(end) => host.len() > end.len() && host.ends_with(end.as_str()),
            Self::Is(name) => host == name,
        }
    }
}

/// Whether `text` is like `pattern`, in which `*` stands for any run of characters.
fn like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    // Taking each part as early as possible leaves the most for the ones after it.
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(pattern: &str, url: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(&Url::parse(url).unwrap())
    }

    #[test]
    fn scheme_host_and_port_are_exact() {
        let pattern = "https://good.com/hooks/*";
        assert!(allows(pattern, "https://good.com/hooks/a/b?x=1"));
        assert!(allows(pattern, "https://GOOD.com:443/hooks/"));
        for url in [
            "http://good.com/hooks/a",
            "https://good.com:8443/hooks/a",
            "https://good.com.evil.com/hooks/a",
            "https://evilgood.com/hooks/a",
            "https://evil.com/good.com/hooks/a",
            "https://good.com@evil.com/hooks/a",
            "https://good.com%40evil.com/hooks/a",
            "https://evil.com\\@good.com/hooks/a",
            "https://evil.com#@good.com/hooks/a",
            "https://evil.com?https://good.com/hooks/a",
            "https://good.com./hooks/a",
            "https://good.com/other",
            "https://good.com/hooks/../other",
            "https://good.com/hooks/%2e%2e/other",
            "https://good.com/HOOKS/a",
        ] {
            let parsed = Url::parse(url);
            let matched = parsed.is_ok_and(|url| Pattern::parse(pattern).unwrap().matches(&url));
            assert!(!matched, "{url}");
        }
    }

    #[test]
    fn a_star_in_the_host_is_any_name_below() {
        assert!(allows("https://*.good.com", "https://a.good.com/x"));
        assert!(allows("https://*.good.com", "https://a.b.good.com/x"));
        assert!(!allows("https://*.good.com", "https://good.com/"));
        assert!(!allows("https://*.good.com", "https://a.good.com.evil.com/"));
        assert!(!allows("https://*.good.com", "https://evil.com/.good.com"));
        assert!(allows("https://*", "https://anywhere.example/x"));
        assert!(!allows("https://*", "https://anywhere.example:444/x"));
        assert!(allows("https://*:*", "https://anywhere.example:444/x"));
        assert!(allows("http://[::1]:8080/", "http://[0:0::1]:8080/"));
        assert!(allows("http://127.0.0.1:*/", "http://0x7f.1:9/"));
        assert!(allows("https://müller.example", "https://xn--mller-kva.example/"));
    }

    #[test]
    fn a_star_in_the_path_is_any_run_of_characters() {
        for (pattern, path, want) in [
            ("/", "/", true),
            ("/", "/a", false),
            ("/*", "/", true),
            ("/a/*/c", "/a/b/c", true),
            ("/a/*/c", "/a/b/b/c", true),
            ("/a/*/c", "/a/c", false),
            ("/a*b*c", "/abc", true),
            ("/a*b*c", "/acb", false),
            ("/*ab", "/aab", true),
            ("/a*a", "/a", false),
        ] {
            assert_eq!(like(pattern, path), want, "{pattern} {path}");
        }
    }

    #[test]
    fn patterns_that_let_in_more_than_meant_are_refused() {
        for text in [
            "good.com",
            "ftp://good.com",
            "*://good.com",
            "https://",
            "https:///x",
            "https://*good.com",
            "https://good.*",
            "https://a.*.com",
            "https://*.*.com",
            "https://u@good.com",
            "https://good.com?x",
            "https://good.com#x",
            "https://good.com:x/",
            "https://good.com:99999/",
            "https://*.127.0.0.1/",
            "https://good .com",
            "https://\\good.com",
        ] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
