//! Every file of the console, as it lies in `assets/`.

/// One file of the console.
pub(super) struct File {
    /// Below the page's own address.
    pub(super) path: &'static str,
    /// Its content.
    pub(super) bytes: &'static [u8],
}

impl File {
    /// Its content type; `nosniff` makes browsers follow it.
    pub(super) fn kind(&self) -> &'static str {
        match self.path.rsplit_once('.').map(|(_, ending)| ending) {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "application/octet-stream",
        }
    }
}

/// The page itself.
pub(super) const PAGE: &str = "index.html";

macro_rules! files {
    ($($path:literal,)*) => {
        &[$(File { path: $path, bytes: include_bytes!(concat!("assets/", $path)) },)*]
    };
}

/// All of them. A test compares the list with the folder.
pub(super) const FILES: &[File] = files![
    "icon.svg",
    "index.html",
    "js/actions.js",
    "js/api.js",
    "js/app.js",
    "js/body.js",
    "js/totals.js",
    "js/bulk.js",
    "js/causes.js",
    "js/dead.js",
    "js/dialog.js",
    "js/early.js",
    "js/feed.js",
    "js/filters.js",
    "js/find.js",
    "js/format.js",
    "js/health.js",
    "js/help.js",
    "js/histogram.js",
    "js/history.js",
    "js/i18n.js",
    "js/keys.js",
    "js/lib.js",
    "js/live.js",
    "js/login.js",
    "js/main.js",
    "js/message.js",
    "js/nav.js",
    "js/nodes.js",
    "js/overview.js",
    "js/pairs.js",
    "js/parts.js",
    "js/plot.js",
    "js/prefs.js",
    "js/queues.js",
    "js/raw.js",
    "js/router.js",
    "js/rows.js",
    "js/send.js",
    "js/series.js",
    "js/session.js",
    "js/sinks.js",
    "js/snippets.js",
    "js/store.js",
    "js/stream.js",
    "js/toasts.js",
    "js/when.js",
    "style/layout.css",
    "style/parts.css",
    "style/screens.css",
    "style/tokens.css",
    "vendor/htm-3.1.1.js",
    "vendor/preact-10.29.8.js",
    "vendor/preact-hooks-10.29.8.js",
    "vendor/uplot-1.6.32.css",
    "vendor/uplot-1.6.32.js",
    "words/en.js",
    "words/zh.js",
];
