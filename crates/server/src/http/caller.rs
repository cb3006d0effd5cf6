//! Authentication and authorization of a request.

use std::{
    borrow::Cow,
    sync::{Arc, LazyLock},
};

use axum::extract::FromRequestParts;
use duly::{ErrorCode, Lane};
use http::{HeaderMap, Method, header, request::Parts};

use super::{
    app::App,
    fault::{ApiResult, Fault},
};
use crate::{
    auth::{self, Caller, Role},
    wire::Alert,
};

/// The alert about messages for a sink that is not configured.
const ORPHAN: &str = "orphan";

/// The caller of this request, known from its token.
pub(super) struct Who(Cow<'static, Caller>);

impl FromRequestParts<Arc<App>> for Who {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<Self> {
        known(app, &parts.headers).map(Self)
    }
}

fn known(app: &App, headers: &HeaderMap) -> ApiResult<Cow<'static, Caller>> {
    if app.tokens.is_empty() {
        static ANYONE: LazyLock<Caller> = LazyLock::new(Caller::anyone);
        return Ok(Cow::Borrowed(&ANYONE));
    }
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(token) = given.and_then(auth::bearer) else {
        return Err(Fault::new(
            ErrorCode::Unauthorized,
            "send the header `Authorization: Bearer <token>`; `duly token` makes one",
        ));
    };
    app.tokens.caller(token).map(Cow::Owned).ok_or_else(|| {
        Fault::new(
            ErrorCode::Unauthorized,
            "this token is not known here; look at auth.tokens of the configuration",
        )
    })
}

impl Who {
    /// The identified caller.
    pub(super) fn caller(&self) -> &Caller {
        &self.0
    }

    /// Refuses a caller without this role.
    pub(super) fn need(&self, role: Role) -> ApiResult<&Self> {
        if self.0.may(role) {
            return Ok(self);
        }
        let (name, role) = (&self.0.name, role.word());
        Err(Fault::new(
            ErrorCode::Forbidden,
            format!("token {name:?} lacks the role {role}; use another, or add the role to it"),
        ))
    }

    /// Refuses a caller whose token does not cover this topic.
    pub(super) fn require_topic(&self, topic: &str) -> ApiResult<&Self> {
        if self.0.may_touch(topic) {
            return Ok(self);
        }
        let name = &self.0.name;
        Err(Fault::new(
            ErrorCode::Forbidden,
            format!("token {name:?} is not for the topic {topic:?}; use another, or add the topic to it"),
        ))
    }

    /// Refuses a caller that may not choose this id. A generated id needs no right.
    pub(super) fn require_id_allowed(&self, id: Option<&str>) -> ApiResult<&Self> {
        let Some(id) = id.filter(|id| !self.0.may_choose(id)) else { return Ok(self) };
        let (name, ids) = (&self.0.name, self.0.ids_in_words());
        // The same error whether the id exists or not: the store was not queried.
        let detail = format!(
            "token {name:?} is for some topics only, and the ids it chooses match {ids}; {id:?} does not: choose another, leave \
             it out, or set ids of the token"
        );
        Err(Fault::at(ErrorCode::IdNotAllowed, "id", detail))
    }

    /// Whether the caller may see this alert: it is about one of their topics.
    pub(super) fn sees_alert(&self, alert: &Alert) -> bool {
        // The scope of this alert is a sink, not a topic.
        let is_of_topic = alert.name != ORPHAN;
        self.sees_all() || alert.scope.as_deref().is_some_and(|topic| is_of_topic && self.sees(topic))
    }

    /// Whether the caller may see events of this lane. A lane of a sink carries all topics, so tokens for some topics may not.
    pub(super) fn sees_lane(&self, lane: &Lane) -> bool {
        match lane {
            _ if self.sees_all() => true,
            Lane::Queue(topic) => self.sees(topic.as_str()),
            _ => false,
        }
    }

    /// Whether the topic of each message must be checked.
    pub(super) fn sees_all(&self) -> bool {
        self.0.sees_all()
    }

    /// Refuses a token for some topics that names none of them.
    pub(super) fn require_some_topic(&self, topic: Option<&str>) -> ApiResult<&Self> {
        match topic {
            Some(topic) => self.require_topic(topic),
            None if self.sees_all() => Ok(self),
            None => {
                let name = &self.0.name;
                Err(Fault::new(
                    ErrorCode::Forbidden,
                    format!("token {name:?} is for some topics only; name one of them"),
                ))
            }
        }
    }

    /// Refuses a token for some topics: the call concerns all of them.
    pub(super) fn require_all_topics(&self) -> ApiResult<&Self> {
        if self.sees_all() {
            return Ok(self);
        }
        let name = &self.0.name;
        let detail =
            format!("token {name:?} is for some topics only, and this is about all of them; use another");
        Err(Fault::new(ErrorCode::Forbidden, detail))
    }

    /// Whether the caller may see this topic.
    pub(super) fn sees(&self, topic: &str) -> bool {
        self.0.may_touch(topic)
    }
}

/// Refuses requests of foreign web pages: a browser on this machine can reach loopback, too.
pub(super) fn checked(app: &App, method: &Method, headers: &HeaderMap) -> ApiResult<()> {
    let text = |name| headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
    let host = text(header::HOST);
    // With two Host headers, a proxy in front may have checked the other one.
    if headers.get_all(header::HOST).iter().count() > 1 {
        return Err(Fault::new(
            ErrorCode::BadHost,
            "there are two Host headers, and only one can be meant; send one",
        ));
    }
    if !auth::host_allowed(host, app.node.listen) {
        let detail = "on loopback the Host is localhost, 127.0.0.1 or [::1]; call the server by one of these";
        return Err(Fault::new(ErrorCode::BadHost, detail));
    }
    if app.tokens.is_empty() && auth::is_loopback(app.node.listen.ip()) {
        app.proxied.observe(headers, app.age());
    }
    if method.is_safe() {
        return Ok(());
    }
    let own = |origin: &str| {
        let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
        host == Some(authority)
    };
    // A page cannot forge Sec-Fetch-Site. Without that header compare Origin and Host; a proxy in front may have changed Host,
    // but not Origin.
    let foreign = match text(http::HeaderName::from_static("sec-fetch-site")) {
        Some(site) => site != "same-origin" && site != "none",
        None => text(header::ORIGIN).is_some_and(|origin| !own(origin)),
    };
    if foreign {
        let detail =
            "this call came from a page of another site; call from a program, or from this server's own page";
        return Err(Fault::new(ErrorCode::CrossOrigin, detail));
    }
    Ok(())
}
