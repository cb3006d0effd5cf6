//! Middleware of every request: refuses foreign pages and unreadable requests, catches panics.

use duly::ErrorCode;
use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::{
    Router,
    body::Body,
    response::{IntoResponse, Response},
};
use futures_util::FutureExt;
use http::{HeaderValue, Request, header};
use hyper::body::Incoming;
use tokio::time::Instant;
use tower::Service;

use super::{app::App, body, caller, fault::Fault, readable, route::RouteTemplates};

/// The router with its middleware. Axum layers would wrap, and allocate for, each route separately.
#[derive(Clone)]
pub struct Front {
    router: Router,
    routes: Arc<RouteTemplates>,
    app: Arc<App>,
}

impl Front {
    /// All routes of this server.
    pub fn new(app: Arc<App>) -> Self {
        let (router, routes) = super::router(app.clone());
        Self { router, routes: Arc::new(routes), app }
    }

    /// Handles one request, and measures it.
    pub(super) async fn answer(self, request: Request<Incoming>) -> Response {
        let (app, routes, began) = (self.app.clone(), self.routes.clone(), Instant::now());
        let (method, route) = (request.method().clone(), routes.of(request.uri().path()).clone());
        let response = self.response(request).await;
        app.telemetry.request(&route, &method, response.status(), began.elapsed());
        response
    }

    async fn response(mut self, request: Request<Incoming>) -> Response {
        let checked = caller::checked(&self.app, request.method(), request.headers())
            .and_then(|()| readable::checked(request.uri().path(), request.headers()))
            .and_then(|()| body::expected(&self.app, request.uri().path(), request.headers()));
        let mut response = match checked {
            Err(fault) => fault.into_response(),
            Ok(()) => {
                let answered = AssertUnwindSafe(self.router.call(request.map(Body::new))).catch_unwind();
                // The panic hook has logged the panic. The inner error is infallible.
                answered.await.unwrap_or_else(|_| Ok(panicked())).unwrap_or_else(|never| match never {})
            }
        };
        let headers = response.headers_mut();
        headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
        headers.entry(header::X_CONTENT_TYPE_OPTIONS).or_insert(HeaderValue::from_static("nosniff"));
        response
    }
}

fn panicked() -> Response {
    Fault::new(
        ErrorCode::Internal,
        "the server failed at this call; whether it was done is unknown: ask for the message by its id",
    )
    .into_response()
}
