//! From a topic to the address it stands for.

use std::borrow::Cow;

use duly_core::{ErrorCode, Invalid};
use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use url::Url;

use super::pattern::Pattern;

/// Characters that are escaped in a path: all that a path may not hold, and ";", where some servers cut a segment off.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b'=');

/// Where one message goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) uri: Uri,
    pub(super) source: UrlSource,
}

/// Who named the address: that decides who is to blame when it does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UrlSource {
    /// The configuration: every message of the sink goes there.
    Config,
    /// The message: the others go elsewhere.
    Message,
}

impl Endpoint {
    /// Scheme, host and port: what connections are made to.
    pub(super) fn origin(&self) -> String {
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        format!("{}://{authority}", self.uri.scheme_str().unwrap_or_default())
    }
}

/// The destination of a topic: the whole path, without the query. Its messages share pacing and breaker.
///
/// Not the origin: one path may be silent, slow or forbidden while the others answer, and many customers' addresses lie at one
/// origin (those of a chat service, say). What is lost by that is little. The table of destinations is bounded
/// whatever their number; and a dead origin with a new path for every message, which no breaker would notice, has
/// requests to [`PATHS_MAX`](super::origin::PATHS_MAX) of them under way at most.
pub(super) fn destination(topic: &str) -> Cow<'_, str> {
    if !is_whole(topic) {
        let path = topic.strip_prefix('/').unwrap_or(topic);
        return Cow::Borrowed(if path.is_empty() { "/" } else { path });
    }
    // A topic that is no URL is refused alone, whatever its name.
    let Ok(url) = Url::parse(topic) else { return Cow::Borrowed(topic) };
    let name = &url[..url::Position::AfterPath];
    match topic.get(..name.len()) {
        Some(same) if same == name => Cow::Borrowed(same),
        _ => Cow::Owned(name.to_owned()),
    }
}

fn is_whole(topic: &str) -> bool {
    let begins =
        |scheme: &str| topic.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    begins("http://") || begins("https://")
}

fn fault(detail: impl Into<String>) -> Invalid {
    Invalid::new(ErrorCode::BadTopic, "topic", detail)
}

/// Where a message with this topic goes: a path below `base`, or a whole address that one of `allowed` matches.
pub(super) fn endpoint_of(topic: &str, base: Option<&Url>, allowed: &[Pattern]) -> Result<Endpoint, Invalid> {
    if is_whole(topic) {
        return whole(topic, allowed);
    }
    let Some(base) = base else {
        return Err(fault("a path, but this sink has no url to put it below; send a whole URL, or set url"));
    };
    let mut text = base[..url::Position::BeforePath].to_owned();
    below(base.path(), topic, &mut text)?;
    if let Some(query) = base.query() {
        text.push('?');
        text.push_str(query);
    }
    Ok(Endpoint { uri: uri(&text)?, source: UrlSource::Config })
}

fn uri(text: &str) -> Result<Uri, Invalid> {
    text.parse().map_err(|_| fault("the address that it makes cannot be written in a request"))
}

/// Writes `base` and the topic as a path below it, every character standing for itself.
fn below(base: &str, topic: &str, path: &mut String) -> Result<(), Invalid> {
    if topic == "/" {
        path.push_str(base);
        return Ok(());
    }
    path.push_str(base.strip_suffix('/').unwrap_or(base));
    let segments = topic.strip_prefix('/').unwrap_or(topic);
    let last = segments.matches('/').count();
    for (index, segment) in segments.split('/').enumerate() {
        let is_empty = segment.is_empty() && index != last;
        // Some servers take a backslash for a slash, even when it comes escaped.
        if is_empty || segment == "." || segment == ".." || segment.contains('\\') {
            return Err(fault(
                "a path with an empty part, . or .. or a backslash in it; name the path as it is",
            ));
        }
        path.push('/');
        path.extend(utf8_percent_encode(segment, &ESCAPED));
    }
    Ok(())
}

fn whole(topic: &str, allowed: &[Pattern]) -> Result<Endpoint, Invalid> {
    let url = Url::parse(topic).map_err(|why| fault(format!("not a URL: {why}")))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(fault("a URL with a user name in it; credentials belong into the sink's headers"));
    }
    if url.fragment().is_some() {
        return Err(fault("a URL with a # in it: that part is never sent, leave it out"));
    }
    // Servers that decode these before they look at the path would leave the folder that a pattern allows.
    let path = url.path().to_ascii_lowercase();
    let climbs = |segment: &str| segment.starts_with("..;") || segment.starts_with(".;");
    if path.contains("%2f") || path.contains("%5c") || path.split('/').any(climbs) {
        return Err(fault("a URL with an escaped slash or a ..; in its path; write the path as it is"));
    }
    if !allowed.iter().any(|pattern| pattern.matches(&url)) {
        return Err(fault("a whole URL that allow_urls of this sink does not match"));
    }
    Ok(Endpoint { uri: uri(url.as_str())?, source: UrlSource::Message })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goes(base: &str, topic: &str) -> Result<String, Invalid> {
        let base = Url::parse(base).unwrap();
        endpoint_of(topic, Some(&base), &[]).map(|endpoint| endpoint.uri.to_string())
    }

    #[test]
    fn a_path_lies_below_the_base() {
        for (base, topic, want) in [
            ("http://h", "a", "http://h/a"),
            ("http://h/", "/a", "http://h/a"),
            ("http://h/base", "a/b", "http://h/base/a/b"),
            ("http://h/base/", "a/b/", "http://h/base/a/b/"),
            ("http://h/base?key=1", "a", "http://h/base/a?key=1"),
            ("http://h/base", "/", "http://h/base"),
            ("http://h:81/", "a b?c#d%2e;ü", "http://h:81/a%20b%3Fc%23d%252e%3B%C3%BC"),
            ("http://h/base", "https:/x", "http://h/base/https:/x"),
            ("http://h/base", "user@evil.com", "http://h/base/user@evil.com"),
        ] {
            assert_eq!(goes(base, topic).as_deref(), Ok(want), "{topic}");
        }
    }

    #[test]
    fn a_destination_is_a_path_without_its_query() {
        for (topic, want) in [
            ("orders/late", "orders/late"),
            ("/orders/late", "orders/late"),
            ("/", "/"),
            ("https://h.example/a/b", "https://h.example/a/b"),
            ("https://h.example/a/b?c=1", "https://h.example/a/b"),
            ("HTTPS://H.example:443/a/../b?c", "https://h.example/b"),
            ("http://h.example", "http://h.example/"),
            ("http://[broken", "http://[broken"),
        ] {
            assert_eq!(destination(topic), want, "{topic}");
        }
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let allowed = [Pattern::parse("https://*:*").unwrap()];
        for (topic, want) in [
            ("https://H.example/a?b", "https://h.example"),
            ("https://h.example:443/c", "https://h.example"),
            ("https://h.example:8443/", "https://h.example:8443"),
        ] {
            assert_eq!(endpoint_of(topic, None, &allowed).unwrap().origin(), want);
        }
    }

    #[test]
    fn no_path_leaves_the_base() {
        for topic in [
            "..",
            "../a",
            "a/../../b",
            "a/./b",
            ".",
            "//evil.com/a",
            "a//b",
            "ftp://evil.com/a",
            "..\\a",
            "\\\\evil.com",
        ] {
            assert_eq!(goes("http://h/base", topic).unwrap_err().code, "bad_topic", "{topic}");
        }
        for topic in ["%2e%2e/a", "..;/a", "?@evil.com", "...", "..%2f"] {
            let url = Url::parse(&goes("http://h/base", topic).unwrap()).unwrap();
            assert_eq!(url.host_str(), Some("h"), "{topic}");
            assert!(url.path().starts_with("/base/"), "{topic} became {url}");
        }
    }

    #[test]
    fn a_whole_url_goes_where_the_patterns_allow_and_nowhere_else() {
        let allowed = [Pattern::parse("https://good.com/hooks/*").unwrap()];
        let there = endpoint_of("HTTPS://good.com/hooks/a?b", None, &allowed).unwrap();
        assert_eq!(
            (there.uri.to_string().as_str(), there.source),
            ("https://good.com/hooks/a?b", UrlSource::Message)
        );
        for topic in [
            "https://evil.com/hooks/a",
            "https://good.com@evil.com/hooks/a",
            "https://user:word@good.com/hooks/a",
            "https://good.com/hooks/a#x",
            "https://good.com/hooks/..%2fadmin",
            "https://good.com/hooks/..%5Cadmin",
            "https://good.com/hooks/..;/admin",
            "https://good.com/hooks\\..\\admin",
            "http://good.com/hooks/a",
            "https://",
            "https://good.com:0x1bb/hooks/a",
            "https://good.com /hooks/a",
        ] {
            assert_eq!(endpoint_of(topic, None, &allowed).unwrap_err().code, "bad_topic", "{topic}");
        }
        assert_eq!(
            endpoint_of("hooks/a", None, &allowed).unwrap_err().code,
            "bad_topic",
            "a path without a base"
        );
    }
}
