//! The configuration of a sink into NATS, as used.

use std::{fmt, fs, time::Duration};

use async_nats::ServerAddr;
use duly_core::{ErrorCode, Invalid};
use rustls::{ClientConfig, RootCertStore};

use super::config::{NatsConfig, NatsMode};
use crate::{
    config_values::percent_decoded,
    tls::{self, Identity},
};

/// The longest that one call may be given.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(600);
const WANTED: &str = "a URL such as nats://127.0.0.1:4222, tls://host, or nats://user:password@a,b,c";

/// Everything set, everything checked.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) servers: Vec<ServerAddr>,
    pub(super) is_secure: bool,
    pub(super) login: Login,
    pub(super) mode: NatsMode,
    pub(super) timeout: Duration,
    pub(super) tls: ClientConfig,
}

/// Who we say that we are.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Login {
    Nobody,
    Token(String),
    User(String, String),
    /// What stands in a `.creds` file.
    Creds(String),
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

struct Servers {
    servers: Vec<ServerAddr>,
    is_secure: bool,
    login: Login,
}

impl Settings {
    /// How long one server may take to connect to, so that a silent one leaves time for the others.
    pub(super) fn connect_share(&self) -> Duration {
        self.timeout / 2 / u32::try_from(self.servers.len()).unwrap_or(u32::MAX)
    }

    /// Checks what is written, and reports every fault at once.
    pub(super) fn read(config: &NatsConfig) -> Result<Self, Vec<Invalid>> {
        let mut faults = Vec::new();
        let mut fault =
            |path: &str, detail: String| faults.push(Invalid::new(ErrorCode::BadSink, path, detail));
        let servers = match &config.url.urls()[..] {
            [] => Err(format!("set url: {WANTED}")),
            urls => parse_servers(urls),
        };
        let servers = servers.map_err(|detail| fault("url", detail)).ok();
        let is_plain = servers.as_ref().is_some_and(|servers| !servers.is_secure);
        let files =
            [("ca", &config.ca), ("client_cert", &config.client_cert), ("client_key", &config.client_key)];
        for (path, _) in files.iter().filter(|(_, file)| file.is_some() && is_plain) {
            fault(path, "it is of no use without TLS: write tls:// in url".into());
        }
        let own = tls::identity(config.client_cert.as_deref(), config.client_key.as_deref());
        let own = own.map_err(|(path, detail)| fault(path, detail)).ok().flatten();
        let tls = secured(config, own.as_ref()).map_err(|detail| fault("ca", detail)).ok();
        let login = login(config, servers.as_ref()).map_err(|(path, detail)| fault(path, detail)).ok();
        let timeout = config.request_timeout();
        if timeout.is_zero() || timeout > REQUEST_TIMEOUT_MAX {
            fault("request_timeout", format!("longer than nothing, and at most {REQUEST_TIMEOUT_MAX:?}"));
        }
        match (servers, login, tls) {
            (Some(Servers { servers, is_secure, .. }), Some(login), Some(tls)) if faults.is_empty() => {
                Ok(Self { servers, is_secure, login, mode: config.mode, timeout, tls })
            }
            _ => Err(faults),
        }
    }
}

/// Whom we trust, and who we are.
fn secured(config: &NatsConfig, own: Option<&Identity>) -> Result<ClientConfig, String> {
    let (roots, authorities) = match &config.ca {
        None => (tls::of_the_system(), Vec::new()),
        Some(path) => (RootCertStore::empty(), tls::authorities(path)?),
    };
    tls::proving(roots, &authorities, own).map_err(|why| why.detail)
}

/// One way to log in, and no more.
fn login(config: &NatsConfig, servers: Option<&Servers>) -> Result<Login, (&'static str, String)> {
    let in_url = servers.map_or(Login::Nobody, |servers| servers.login.clone());
    let is_in_url = !matches!(in_url, Login::Nobody);
    match (&config.token, &config.creds_file) {
        (Some(_), _) if is_in_url => Err(("token", "the url says who logs in already: choose one".into())),
        (_, Some(_)) if is_in_url => {
            Err(("creds_file", "the url says who logs in already: choose one".into()))
        }
        (Some(_), Some(_)) => Err(("creds_file", "there is a token already: choose one".into())),
        (Some(token), None) => Ok(Login::Token(token.reveal().into())),
        (None, Some(path)) => {
            let fault = |why: String| ("creds_file", format!("cannot read {}: {why}", path.display()));
            let text = fs::read_to_string(path).map_err(|why| fault(why.to_string()))?;
            // The words of the client could quote the file.
            async_nats::ConnectOptions::with_credentials(&text)
                .map_err(|_| fault("it holds no JWT and seed, as nsc writes them".into()))?;
            Ok(Login::Creds(text))
        }
        (None, None) => Ok(in_url),
    }
}

/// The servers of all of these, which have one scheme and one login.
fn parse_servers(urls: &[String]) -> Result<Servers, String> {
    let mut all: Option<Servers> = None;
    for url in urls {
        let one = parse_server(url).ok_or_else(|| format!("it is not {WANTED}"))?;
        match &mut all {
            None => all = Some(one),
            Some(all) if all.is_secure == one.is_secure && all.login == one.login => {
                all.servers.extend(one.servers);
            }
            Some(_) => return Err("its hosts differ in scheme or login: all of them have the same".into()),
        }
    }
    all.ok_or_else(|| format!("set url: {WANTED}"))
}

/// `scheme://who@host:port`.
fn parse_server(url: &str) -> Option<Servers> {
    let (scheme, rest) = url.split_once("://")?;
    let is_secure = match scheme {
        "nats" => false,
        "tls" => true,
        _ => return None,
    };
    // A password may hold a slash or an @ that somebody forgot to escape.
    let (who, host) = rest.rsplit_once('@').map_or((None, rest), |(who, host)| (Some(who), host));
    let host = host.strip_suffix('/').unwrap_or(host);
    let server: ServerAddr = format!("{scheme}://{host}").parse().ok()?;
    if host.is_empty() || host.contains(['/', '?', '#']) {
        return None;
    }
    let login = match who.map(|who| who.split_once(':')) {
        None => Login::Nobody,
        Some(None) => Login::Token(percent_decoded(who.unwrap_or_default())?),
        Some(Some((user, password))) => Login::User(percent_decoded(user)?, percent_decoded(password)?),
    };
    Some(Servers { servers: vec![server], is_secure, login })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_servers(url: &str) -> Result<Servers, String> {
        super::parse_servers(&crate::OneOrMany(vec![crate::Secret::new(url)]).urls())
    }

    #[test]
    fn an_address_may_have_a_login_and_several_hosts() {
        let Ok(found) = parse_servers("tls://ann:p%40ss@a,b:4333/") else { panic!("it cannot be read") };
        assert!(found.is_secure);
        let servers: Vec<_> = found.servers.iter().map(|server| (server.host(), server.port())).collect();
        assert_eq!(servers, [("a", 4222), ("b", 4333)]);
        assert!(matches!(found.login, Login::User(user, password) if user == "ann" && password == "p@ss"));
        let Ok(found) = parse_servers("nats://t0ken@a") else { panic!("it cannot be read") };
        assert!(matches!(found.login, Login::Token(token) if token == "t0ken"));
        for wrong in ["a", "http://a", "nats://", "nats://a,,b", "nats://a:x", "nats://a/b", "nats://%4:x@a"]
        {
            assert!(parse_servers(wrong).is_err(), "{wrong}");
        }
        let both = |one: &str, other: &str| super::parse_servers(&[one.to_owned(), other.to_owned()]);
        assert_eq!(both("nats://t@a", "nats://t@b:5").map(|found| found.servers.len()), Ok(2));
        assert!(both("nats://a", "tls://b").is_err() && both("nats://t@a", "nats://b").is_err());
    }
}
