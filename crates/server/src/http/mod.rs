//! HTTP: one file per group of routes, one table of errors.

mod addresses;
mod answer;
mod answer_memory;
mod app;
mod batch;
mod body;
mod bulk;
mod caller;
mod delivery;
mod errors;
mod events;
mod fault;
mod followers;
mod front;
mod health;
mod intake;
mod items;
mod lanes;
mod listen;
mod messages;
mod openapi;
mod overview;
mod pages;
mod patient;
mod proxied;
mod queues;
mod readable;
mod receipts;
mod response;
mod result_room;
mod route;
mod select;
mod sinks;
mod slow_reader;
mod topics;
mod trace;
mod whoami;

use duly::ErrorCode;
use std::{sync::Arc, time::Duration};

use axum::Router;
use utoipa::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

pub use app::{App, AppParts, SinkEntry};
pub use fault::Fault;
pub use front::Front;
pub use listen::{Listening, listen};
pub use pages::{console_paths, page_paths};
use route::RouteTemplates;
pub(crate) use topics::Topics;

use crate::wire::Problem;

/// The general part of the OpenAPI document.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Duly",
        description = "Delayed messages that are never early and never lost. Errors are RFC 9457 with a stable `code`; each is explained at /errors.",
        license(name = "Apache-2.0 OR MIT", identifier = "Apache-2.0 OR MIT"),
    ),
    tags(
        (name = "messages", description = "Schedule, look, change one's mind"),
        (name = "queues", description = "The built-in queue"),
        (name = "sinks", description = "Where messages go"),
        (name = "dead letters", description = "What was given up"),
        (name = "overview", description = "The whole at a glance"),
        (name = "health", description = "For orchestrators and monitoring"),
    ),
    security((), ("token" = [])),
    components(schemas(Problem)),
    modifiers(&Token),
)]
struct Api;

/// Adds the security scheme of the bearer token.
struct Token;

impl utoipa::Modify for Token {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("A token made by `duly token`"))
            .build();
        api.components.get_or_insert_default().add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

fn routes() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(messages::send, messages::list))
        .routes(routes!(messages::get, messages::reschedule, messages::cancel))
        .routes(routes!(messages::fire))
        .routes(routes!(batch::send))
        .routes(routes!(bulk::cancel))
        .routes(routes!(bulk::reschedule))
        .routes(routes!(bulk::fire))
        .routes(routes!(queues::list))
        .routes(routes!(queues::receive))
        .routes(routes!(queues::ack))
        .routes(routes!(queues::nack))
        .routes(routes!(queues::extend))
        .routes(routes!(queues::receive_any))
        .routes(routes!(receipts::ack_any))
        .routes(routes!(receipts::nack_any))
        .routes(routes!(receipts::extend_any))
        .routes(routes!(queues::pause))
        .routes(routes!(queues::resume))
        .routes(routes!(sinks::list))
        .routes(routes!(sinks::pause))
        .routes(routes!(sinks::resume))
        .routes(routes!(sinks::probe))
        .routes(routes!(messages::dead))
        .routes(routes!(bulk::replay))
        .routes(routes!(bulk::purge))
        .routes(routes!(overview::stats))
        .routes(routes!(overview::forecast))
        .routes(routes!(overview::nodes))
        .routes(routes!(overview::levels))
        .routes(routes!(whoami::whoami))
        .routes(routes!(events::follow))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
}

/// The OpenAPI 3.1 file, as committed in `docs/reference/openapi.json`.
pub fn openapi() -> String {
    let mut api = serde_json::to_value(routes().into_openapi()).unwrap_or_default();
    openapi::tighten(&mut api);
    format!("{api:#}\n")
}

/// Every route, and the templates of their paths.
fn router(app: Arc<App>) -> (Router, RouteTemplates) {
    let (router, api) = routes().split_for_parts();
    let templates = api.paths.paths.into_keys().chain(page_paths());
    let router = router
        .merge(pages::routes())
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .with_state(app);
    (router, RouteTemplates::new(templates))
}

async fn no_such_route(uri: http::Uri) -> Fault {
    Fault::new(
        ErrorCode::NoSuchRoute,
        format!("nothing is at {:?}; /openapi.json lists what there is", uri.path()),
    )
}

async fn no_such_method(method: http::Method, uri: http::Uri) -> Fault {
    Fault::new(
        ErrorCode::MethodNotAllowed,
        format!("{:?} does not take {method}; /openapi.json lists what it takes", uri.path()),
    )
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    /// Operation ids become names of functions in generated clients.
    #[test]
    fn every_operation_has_an_id_of_its_own() {
        let api: serde_json::Value = serde_json::from_str(&super::openapi()).unwrap();
        let mut ids = std::collections::BTreeSet::new();
        for (path, operations) in api["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                assert!(ids.insert(id), "{method} {path}");
            }
        }
    }

    /// Made from the code, committed for readers. The example `openapi` prints it anew.
    #[test]
    fn the_committed_openapi_file_is_the_one_that_is_served() {
        let committed = include_str!("../../../../docs/reference/openapi.json");
        assert!(
            committed == super::openapi(),
            "docs/reference/openapi.json is old: run `cargo run -p duly-server --example openapi > docs/reference/openapi.json`"
        );
    }
}
