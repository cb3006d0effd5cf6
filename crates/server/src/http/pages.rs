//! The OpenAPI document, the pages of errors, and the console.

use std::sync::Arc;

use axum::{Router, routing::get};
use http::header;

use super::{app::App, errors};
use crate::console;

const OPENAPI: &str = "/openapi.json";
const ERRORS: &str = "/errors";

pub(super) fn routes() -> Router<Arc<App>> {
    let text = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(header::CONTENT_TYPE, kind)], text) })
    };
    // Built once: it is the same for every caller.
    let openapi: &'static str = Box::leak(super::openapi().into_boxed_str());
    Router::new()
        .route(OPENAPI, text("application/json", openapi))
        .route(ERRORS, get(errors::page))
        .merge(console::routes())
}

/// Every path that `GET` answers and the OpenAPI file does not list.
pub fn page_paths() -> impl Iterator<Item = String> {
    [OPENAPI, ERRORS, console::ROOT].into_iter().map(str::to_owned).chain(console_paths())
}

/// The paths of the console's files, without the page at the root.
pub fn console_paths() -> impl Iterator<Item = String> {
    console::paths()
}
