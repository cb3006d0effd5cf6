//! The web console: a page inside the binary, served as it is written, without a build step.
//!
//! It is a client of the HTTP API like any other, and knows no way around it.

mod files;
#[cfg(test)]
mod tests;

use axum::{
    Router,
    body::Bytes,
    response::{IntoResponse, Response},
    routing::get,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use sha2::{Digest, Sha256};

use self::files::{FILES, File, PAGE};

/// The content security policy: the page may load its own files, and call its own server. Nothing inline, nothing from elsewhere, in nobody's
/// frame; and no script can turn text into markup, whatever a message holds.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
     require-trusted-types-for 'script'; trusted-types 'none'";

/// The headers that every file carries besides its own.
fn guards() -> [(HeaderName, &'static str); 6] {
    [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ]
}

/// Where the page is.
pub(crate) const ROOT: &str = "/";

/// The paths of all files.
pub(crate) fn paths() -> impl Iterator<Item = String> {
    FILES.iter().map(path)
}

fn path(file: &File) -> String {
    format!("/{}", file.path)
}

/// The page at `/`, and its files below it. All addresses in them are relative, so that a proxy may put Duly anywhere.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let mut router = Router::new();
    for file in FILES {
        let tag = tag(file);
        let handler = move |headers: HeaderMap| {
            let tag = tag.clone();
            async move { answer(file, &tag, &headers) }
        };
        if file.path == PAGE {
            router = router.route(ROOT, get(handler.clone()));
        }
        router = router.route(&path(file), get(handler));
    }
    router
}

/// A name for this very content: who has it need not load it again.
fn tag(file: &File) -> HeaderValue {
    let digest = Sha256::digest(file.bytes);
    let digits: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    // Hexadecimal digits in quotes are a header's value always.
    HeaderValue::try_from(format!("\"{digits}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

fn answer(file: &'static File, tag: &HeaderValue, asked: &HeaderMap) -> Response {
    let mut response = if has(asked, tag) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Bytes::from_static(file.bytes).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.kind()));
    headers.insert(header::ETAG, tag.clone());
    // Kept, but asked about each time: a new binary shows its own page at once.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    for (name, value) in guards() {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whether the caller holds this content already.
fn has(asked: &HeaderMap, tag: &HeaderValue) -> bool {
    let held = asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    held.flat_map(|list| list.split(','))
        .map(str::trim)
        // A proxy that packs the answer calls the tag weak.
        .map(|one| one.strip_prefix("W/").unwrap_or(one))
        .any(|one| one == "*" || one.as_bytes() == tag.as_bytes())
}
