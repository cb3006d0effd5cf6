//! Refuses a query at a route that takes none, so that a misspelt or misplaced part is never ignored.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use duly::ErrorCode;
use http::Method;
use utoipa::openapi::{
    OpenApi, RefOr,
    path::{Parameter, ParameterIn},
};

use super::fault::{ApiResult, Fault};

/// The operations that take no query, by the path in the document and the method.
pub(super) struct Queries {
    without: Vec<(String, Method)>,
}

impl Queries {
    /// From the document, which lists the parts of each query.
    pub(super) fn of(api: &OpenApi) -> Self {
        let mut without = Vec::new();
        for (path, item) in &api.paths.paths {
            let operations = [
                (Method::GET, &item.get),
                (Method::HEAD, &item.get),
                (Method::POST, &item.post),
                (Method::PATCH, &item.patch),
                (Method::DELETE, &item.delete),
            ];
            for (method, operation) in operations {
                let Some(operation) = operation else { continue };
                let mut parameters = operation.parameters.iter().flatten();
                let is_query = |parameter: &RefOr<Parameter>| match parameter {
                    RefOr::T(parameter) => parameter.parameter_in == ParameterIn::Query,
                    RefOr::Ref(_) => true,
                };
                if !parameters.any(is_query) {
                    without.push((path.clone(), method));
                }
            }
        }
        Self { without }
    }

    fn takes_none(&self, path: &str, method: &Method) -> bool {
        self.without.iter().any(|(template, of)| of == method && is_at(template, path))
    }
}

/// Whether this path is one of the template, such as `/v1/messages/{id}`.
fn is_at(template: &str, path: &str) -> bool {
    let (mut template, mut path) = (template.split('/'), path.split('/'));
    template.by_ref().all(|part| path.next().is_some_and(|own| part == own || part.starts_with('{')))
        && path.next().is_none()
}

/// Refuses the request if it has a query and its operation takes none.
pub(super) async fn check(
    State(queries): State<Arc<Queries>>,
    request: Request,
    next: Next,
) -> ApiResult<Response> {
    let has_query = request.uri().query().is_some_and(|query| !query.is_empty());
    if has_query && queries.takes_none(request.uri().path(), request.method()) {
        let detail = "this address takes no query; /openapi.json lists the parts of each query";
        return Err(Fault::new(ErrorCode::BadQuery, detail));
    }
    Ok(next.run(request).await)
}
