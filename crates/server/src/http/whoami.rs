//! `/v1/whoami`: the name and rights of a token.

use std::sync::Arc;

use axum::{Json, extract::State};

use super::{app::App, caller::Who, fault::Fault};
use crate::{auth::Role, wire::WhoAnswer};

/// Who the caller is, and what they may do
///
/// Answers everybody, also without a token or with one that is not known here: then `known` is false.
#[utoipa::path(
    get, path = "/v1/whoami", operation_id = "get_caller", tag = "overview",
    responses((status = 200, description = "What the token allows", body = WhoAnswer))
)]
pub(super) async fn whoami(State(app): State<Arc<App>>, who: Result<Who, Fault>) -> Json<WhoAnswer> {
    let tokens = !app.tokens.is_empty();
    Json(match who {
        Err(_) => WhoAnswer { tokens, ..WhoAnswer::default() },
        Ok(who) => {
            let caller = who.caller();
            WhoAnswer {
                known: true,
                tokens,
                name: Some(caller.name.clone()),
                roles: caller.roles.iter().copied().map(Role::word).map(Into::into).collect(),
                topics: caller.topics.clone(),
                ids: caller.ids.clone(),
            }
        }
    })
}
