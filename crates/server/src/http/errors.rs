//! `/errors`: what every code means, as a page with an anchor per code, in the reader's language.

use std::{fmt::Write, sync::LazyLock};

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, header};
use serde::Deserialize;

use super::{
    fault::ApiResult,
    messages::{Asked, asked},
};

/// No script, nothing from elsewhere, in nobody's frame: the page is text.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'";
const STYLE: &str = "body{font:16px/1.6 system-ui,sans-serif;max-width:50em;margin:2em auto;padding:0 1em;\
     color-scheme:light dark}code,pre{font-family:ui-monospace,monospace;font-size:.9em}pre{white-space:pre-wrap}\
     h2{margin-top:2em;font-size:1.15em}h2:target{outline:2px solid;outline-offset:.3em}nav{columns:14em}\
     nav a{display:block}";

/// A page, written once: it is the same for every reader of its language.
struct Page {
    html: String,
    language: &'static str,
}

static ENGLISH: LazyLock<Page> =
    LazyLock::new(|| Page { html: html("en", include_str!("../../docs/errors.md")), language: "en" });
static CHINESE: LazyLock<Page> = LazyLock::new(|| Page {
    html: html("zh-CN", include_str!("../../docs/errors.zh-CN.md")),
    language: "zh-CN",
});

/// The language that is asked for by the address. An unknown one is English.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    lang: Option<String>,
}

pub(super) async fn page(wanted: Asked<Wanted>, headers: HeaderMap) -> ApiResult<Response> {
    let wanted = asked(wanted)?.lang;
    let accepted = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok());
    let page = match wanted.as_deref().or_else(|| accepted.and_then(first)) {
        Some(language) if language.to_ascii_lowercase().starts_with("zh") => &*CHINESE,
        _ => &*ENGLISH,
    };
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_LANGUAGE, page.language),
        (header::VARY, "accept-language"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    Ok((headers, page.html.as_str()).into_response())
}

/// The language that is liked best, of those that the page has.
fn first(accepted: &str) -> Option<&str> {
    let weighed = accepted.split(',').filter_map(|entry| {
        let mut parts = entry.trim().split(';');
        let language = parts.next()?.trim();
        let weight = parts.find_map(|part| part.trim().strip_prefix("q=")?.parse::<f32>().ok());
        let small = language.to_ascii_lowercase();
        (small.starts_with("zh") || small.starts_with("en")).then_some((language, weight.unwrap_or(1.0)))
    });
    // Of equals the first: max_by would give the last.
    weighed.reduce(|best, next| if next.1 > best.1 { next } else { best }).map(|(language, _)| language)
}

/// The little of Markdown that the page is written in.
fn html(language: &str, markdown: &str) -> String {
    let mut body = String::new();
    let mut codes = Vec::new();
    let mut blocks = markdown.split("\n\n").map(str::trim).filter(|block| !block.is_empty());
    let title = blocks.next().and_then(|block| block.strip_prefix("# ")).unwrap_or_default();
    let mut head = String::new();
    for block in blocks {
        let out = if codes.is_empty() && !block.starts_with("## ") { &mut head } else { &mut body };
        // A String takes all that is written.
        let _ = if let Some(code) = block.strip_prefix("## ") {
            codes.push(code);
            writeln!(body, "<h2 id=\"{code}\"><a href=\"#{code}\"><code>{code}</code></a></h2>")
        } else if let Some(example) = block.strip_prefix("```json\n") {
            writeln!(out, "<pre>{}</pre>", escaped(example.trim_end_matches("```").trim_end()))
        } else {
            writeln!(out, "<p>{}</p>", inline(block))
        };
    }
    let list: String = codes.iter().map(|code| format!("<a href=\"#{code}\">{code}</a>\n")).collect();
    format!(
        "<!doctype html>\n<html lang=\"{language}\">\n<head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title} · Duly</title><style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n\
         <p><a href=\"?lang=en\">English</a> · <a href=\"?lang=zh\">中文</a></p>\n{head}<nav>\n{list}</nav>\n{body}</body>\n</html>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// `code`, **bold** and [links](to).
fn inline(text: &str) -> String {
    let mut out = String::new();
    // Between backticks nothing has a meaning.
    for (place, part) in text.split('`').enumerate() {
        let part = escaped(part);
        if place % 2 == 1 {
            out.push_str(&format!("<code>{part}</code>"));
            continue;
        }
        for (place, part) in part.split("**").enumerate() {
            let part = linked(part);
            out.push_str(&if place % 2 == 1 { format!("<b>{part}</b>") } else { part });
        }
    }
    out
}

fn linked(text: &str) -> String {
    let link = || {
        let (before, rest) = text.split_once('[')?;
        let (words, rest) = rest.split_once("](")?;
        let (to, after) = rest.split_once(')')?;
        Some(format!("{before}<a href=\"{to}\">{words}</a>{}", linked(after)))
    };
    link().unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_anchor_in_both_languages() {
        for page in [&*ENGLISH, &*CHINESE] {
            for code in duly::ErrorCode::ALL {
                assert!(page.html.contains(&format!("<h2 id=\"{code}\">")), "{code} {}", page.language);
                assert!(page.html.contains(&format!("<a href=\"#{code}\">{code}</a>")), "{code}");
            }
            assert!(!page.html.contains("**") && !page.html.contains("](") && !page.html.contains('`'));
        }
        assert!(ENGLISH.html.contains("<a href=\"https://www.rfc-editor.org/rfc/rfc9457\">RFC 9457</a>"));
        assert!(ENGLISH.html.contains("<code>Authorization: Bearer &lt;token&gt;</code>"));
    }

    #[test]
    fn the_language_is_the_readers_best() {
        assert_eq!(first("zh-CN,zh;q=0.9,en;q=0.8"), Some("zh-CN"));
        assert_eq!(first("fr, zh;q=0.5, en-GB;q=0.7"), Some("en-GB"));
        assert_eq!(first("de"), None);
    }
}
