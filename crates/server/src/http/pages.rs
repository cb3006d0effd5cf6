//! Texts that the server gives of itself, and its console.

use std::sync::Arc;

use axum::{Router, routing::get};
use http::header;

use super::{app::App, errors};

pub(super) fn routes() -> Router<Arc<App>> {
    let text = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
    };
    // Made once: it is the same for every caller.
    let openapi: &'static str = Box::leak(super::openapi().into_boxed_str());
    Router::new()
        .route("/openapi.json", text("application/json", openapi))
        .route("/errors", get(errors::page))
        .merge(crate::console::routes())
}
