//! The configuration of a sink into NATS, as used.

use std::{fmt, fs, time::Duration};

use async_nats::ServerAddr;
use duly_core::Invalid;
use rustls::{ClientConfig, RootCertStore};

use super::config::{NatsConfig, NatsMode};
use crate::tls::{self, Identity};

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
#[derive(Clone)]
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

struct Place {
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
        let mut fault = |path: &str, detail: String| faults.push(Invalid::new("bad_sink", path, detail));
        let place = match &config.url {
            None => Err(format!("set url: {WANTED}")),
            Some(url) => place(url.reveal()),
        };
        let place = place.map_err(|detail| fault("url", detail)).ok();
        let is_plain = place.as_ref().is_some_and(|place| !place.is_secure);
        if config.ca.is_some() && is_plain {
            fault("ca", "a certificate authority is of no use without TLS: write tls:// in url".into());
        }
        if config.client_cert.is_some() && is_plain {
            fault("client_cert", "a certificate is of no use without TLS: write tls:// in url".into());
        }
        let own = tls::identity(config.client_cert.as_deref(), config.client_key.as_deref());
        let own = own.map_err(|(path, detail)| fault(path, detail)).ok().flatten();
        let tls = secured(config, own.as_ref()).map_err(|detail| fault("ca", detail)).ok();
        let login = login(config, place.as_ref()).map_err(|(path, detail)| fault(path, detail)).ok();
        let timeout = config.request_timeout();
        if timeout.is_zero() || timeout > REQUEST_TIMEOUT_MAX {
            fault("request_timeout", format!("longer than nothing, and at most {REQUEST_TIMEOUT_MAX:?}"));
        }
        match (place, login, tls) {
            (Some(Place { servers, is_secure, .. }), Some(login), Some(tls)) if faults.is_empty() => {
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
fn login(config: &NatsConfig, place: Option<&Place>) -> Result<Login, (&'static str, String)> {
    let in_url = place.map_or(Login::Nobody, |place| place.login.clone());
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

/// `scheme://who@host:port,host:port`.
fn place(url: &str) -> Result<Place, String> {
    let wanted = || format!("it is not {WANTED}");
    let (scheme, rest) = url.split_once("://").ok_or_else(wanted)?;
    let is_secure = match scheme {
        "nats" => false,
        "tls" => true,
        _ => return Err(wanted()),
    };
    // A password may hold a slash or an @ that somebody forgot to escape.
    let (who, hosts) = rest.rsplit_once('@').map_or((None, rest), |(who, hosts)| (Some(who), hosts));
    let hosts = hosts.strip_suffix('/').unwrap_or(hosts);
    let server = |host: &str| {
        let server: Result<ServerAddr, _> = format!("{scheme}://{host}").parse();
        server.ok().filter(|_| !host.is_empty() && !host.contains(['/', '?', '#']))
    };
    let servers: Option<Vec<_>> = hosts.split(',').map(server).collect();
    let login = match who.map(|who| who.split_once(':')) {
        None => Login::Nobody,
        Some(None) => Login::Token(decoded(who.unwrap_or_default()).ok_or_else(wanted)?),
        Some(Some((user, password))) => {
            Login::User(decoded(user).ok_or_else(wanted)?, decoded(password).ok_or_else(wanted)?)
        }
    };
    Ok(Place { servers: servers.ok_or_else(wanted)?, is_secure, login })
}

/// `%40` is an `@`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let (byte, after) = match first {
            b'%' => {
                let digits = std::str::from_utf8(after.get(..2)?).ok()?;
                (u8::from_str_radix(digits, 16).ok()?, after.get(2..)?)
            }
            _ => (*first, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_have_a_login_and_several_hosts() {
        let Ok(found) = place("tls://ann:p%40ss@a,b:4333/") else { panic!("it cannot be read") };
        assert!(found.is_secure);
        let servers: Vec<_> = found.servers.iter().map(|server| (server.host(), server.port())).collect();
        assert_eq!(servers, [("a", 4222), ("b", 4333)]);
        assert!(matches!(found.login, Login::User(user, password) if user == "ann" && password == "p@ss"));
        let Ok(found) = place("nats://t0ken@a") else { panic!("it cannot be read") };
        assert!(matches!(found.login, Login::Token(token) if token == "t0ken"));
        for wrong in ["a", "http://a", "nats://", "nats://a,,b", "nats://a:x", "nats://a/b", "nats://%4:x@a"]
        {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}
