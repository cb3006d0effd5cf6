//! Where a broker is and who we are to it, as a URL says it.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use duly_core::{ErrorCode, Invalid};
use rustls::{ClientConfig, RootCertStore};

use crate::{OneOrMany, Secret, config_values::percent_decoded, tls};

/// The longest that one call may be given.
const REQUEST_TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// A way of writing an address: the scheme, whether it is TLS, and the port if none is written.
pub(crate) type Scheme = (&'static str, bool, u16);

/// What is written, to be checked.
pub(crate) struct Written<'a> {
    pub(crate) url: &'a OneOrMany<Secret>,
    pub(crate) ca: Option<&'a Path>,
    pub(crate) client_cert: Option<&'a Path>,
    pub(crate) client_key: Option<&'a Path>,
    pub(crate) timeout: Duration,
    pub(crate) schemes: &'static [Scheme],
    /// An example of a URL.
    pub(crate) wanted: &'static str,
}

/// One place where a broker may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

/// A broker, or several that stand in for each other, and who we are to them.
#[derive(Clone)]
pub(crate) struct Address {
    /// At least one.
    pub(crate) hosts: Vec<Host>,
    pub(crate) tls: Option<Arc<ClientConfig>>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.hosts).finish()
    }
}

impl Address {
    /// Checks what is written, and reports every fault.
    pub(crate) fn read(written: &Written<'_>, faults: &mut Vec<Invalid>) -> Option<Self> {
        let mut fault =
            |path: &str, detail: String| faults.push(Invalid::new(ErrorCode::BadSink, path, detail));
        let authority = match &written.url.urls()[..] {
            [] => Err(format!("set url: {}", written.wanted)),
            urls => parse_all(urls, written),
        };
        let authority = authority.map_err(|detail| fault("url", detail)).ok();
        let is_secure = authority.as_ref().is_none_or(|(_, is_secure)| *is_secure);
        let files =
            [("ca", written.ca), ("client_cert", written.client_cert), ("client_key", written.client_key)];
        for (path, _) in files.iter().filter(|(_, file)| file.is_some() && !is_secure) {
            let scheme = written.schemes.iter().find(|(_, is_secure, _)| *is_secure);
            let scheme = scheme.map_or("", |(name, ..)| name);
            fault(path, format!("a certificate is of no use without TLS: write {scheme}:// in url"));
        }
        let roots = match written.ca {
            None => Ok((tls::of_the_system(), Vec::new())),
            Some(path) => tls::authorities(path).map(|own| (RootCertStore::empty(), own)),
        };
        let roots = roots.map_err(|detail| fault("ca", detail)).ok();
        let own = tls::identity(written.client_cert, written.client_key);
        let own = own.map_err(|(path, detail)| fault(path, detail)).ok().flatten();
        let tls = roots.and_then(|(roots, besides)| {
            tls::proving(roots, &besides, own.as_ref()).map_err(|why| fault("ca", why.detail)).ok()
        });
        if written.timeout.is_zero() || written.timeout > REQUEST_TIMEOUT_MAX {
            fault("request_timeout", format!("longer than nothing, and at most {REQUEST_TIMEOUT_MAX:?}"));
        }
        let (address, is_secure) = authority?;
        Some(Self { tls: tls.filter(|_| is_secure).map(Arc::new), ..address })
    }
}

/// The hosts of all of these, which have one scheme and one login.
fn parse_all(urls: &[String], written: &Written<'_>) -> Result<(Address, bool), String> {
    let mut all: Option<(Address, bool)> = None;
    for url in urls {
        let one = parse(url, written.schemes).ok_or_else(|| format!("it is not {}", written.wanted))?;
        match &mut all {
            None => all = Some(one),
            Some((address, is_secure)) => {
                let (other, other_secure) = one;
                let is_alike = (other_secure, &other.user, &other.password)
                    == (*is_secure, &address.user, &address.password);
                if !is_alike {
                    return Err("its hosts differ in scheme or login: all of them have the same".into());
                }
                address.hosts.extend(other.hosts);
            }
        }
    }
    all.ok_or_else(|| format!("set url: {}", written.wanted))
}

/// `scheme://user:password@host:port`, without what belongs to TLS, and whether that is wanted.
fn parse(url: &str, schemes: &[Scheme]) -> Option<(Address, bool)> {
    let (scheme, rest) = url.split_once("://")?;
    let (_, is_secure, port) = schemes.iter().find(|(name, ..)| *name == scheme)?;
    // A password may hold a slash or an @ that somebody forgot to escape.
    let (who, authority) =
        rest.rsplit_once('@').map_or((None, rest), |(who, authority)| (Some(who), authority));
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let hosts = vec![host(authority, *port)?];
    let (user, password) = match who {
        None => (None, None),
        Some(who) => {
            let (user, password) = who.split_once(':').map_or((who, None), |(user, own)| (user, Some(own)));
            (
                Some(percent_decoded(user)?),
                password.map(percent_decoded).map(|own| own.ok_or(())).transpose().ok()?,
            )
        }
    };
    let is_one_line =
        |text: &Option<String>| text.as_ref().is_none_or(|text| !text.contains(char::is_control));
    let is_fit = is_one_line(&user) && is_one_line(&password);
    is_fit.then_some((Address { hosts, tls: None, user, password }, *is_secure))
}

fn host(authority: &str, port: u16) -> Option<Host> {
    let (name, port) = match authority.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        Some((name, "")) => (name, port),
        Some((name, after)) => (name, after.strip_prefix(':')?.parse().ok()?),
        None => match authority.split_once(':') {
            Some((name, port)) => (name, port.parse().ok()?),
            None => (authority, port),
        },
    };
    let is_fit = !name.is_empty() && port != 0 && !name.contains(['/', '?', '#', ' ']);
    is_fit.then(|| Host { name: name.into(), port })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMES: &[Scheme] = &[("a", false, 1), ("as", true, 2)];

    /// Hosts with ports, whether by TLS, user and password.
    type Read = (Vec<(String, u16)>, bool, Option<String>, Option<String>);

    fn read(urls: &[&str]) -> Option<Read> {
        let url = OneOrMany(urls.iter().map(|url| Secret::new(*url)).collect());
        let written = Written {
            url: &url,
            ca: None,
            client_cert: None,
            client_key: None,
            timeout: Duration::from_secs(1),
            schemes: SCHEMES,
            wanted: "a://host",
        };
        let (found, is_secure) = parse_all(&url.urls(), &written).ok()?;
        let hosts = found.hosts.into_iter().map(|host| (host.name, host.port)).collect();
        Some((hosts, is_secure, found.user, found.password))
    }

    #[test]
    fn an_address_may_have_a_login_and_a_port_and_several_hosts() {
        let host = |name: &str, port| (name.to_owned(), port);
        let (hosts, is_secure, user, password) = read(&["as://ann:p%40s/s@host:7/"]).unwrap();
        assert_eq!((hosts, is_secure), (vec![host("host", 7)], true));
        assert_eq!((user.as_deref(), password.as_deref()), (Some("ann"), Some("p@s/s")));
        let (hosts, is_secure, ..) = read(&["a://[::1]"]).unwrap();
        assert_eq!((hosts, is_secure), (vec![host("::1", 1)], false));
        let several = [host("h", 1), host("::1", 9), host("g", 8)];
        assert_eq!(read(&["a://x:y,z@h,[::1]:9,g:8"]).unwrap().0, several);
        assert_eq!(read(&["a://x:y,z@h", "a://x:y,z@[::1]:9", "a://x:y,z@g:8"]).unwrap().0, several);
        for wrong in [
            "host",
            "b://host",
            "a://",
            "a://h:x",
            "a://h:0",
            "a://h/path",
            "a://x:%0@h",
            "a://%0a@h",
            "a://h,",
        ] {
            assert!(read(&[wrong]).is_none(), "{wrong}");
        }
        assert!(read(&["a://h", "as://g"]).is_none(), "one by TLS, one not");
        assert!(read(&["a://ann@h", "a://bob@g"]).is_none(), "two users");
    }
}
