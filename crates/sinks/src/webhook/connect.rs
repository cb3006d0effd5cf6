//! Connecting, with the address checked at the last moment.
//!
//! A name is resolved once per connection, and the connection goes to an address of that answer which was checked:
//! a name that means something else a moment later changes nothing.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use duly_core::{Clock, Monotonic, SinkErrorKind};
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tower::Service;

use super::{
    address::AddressRule,
    stream::{CertificateFaults, CertificateWatch, Count, Stream},
    tls::{self, Tls},
};
use crate::{tls::is_certificate_io_fault, within::within};

/// How long connecting may take, all addresses of a name and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How many addresses of one name are tried.
const ADDRESSES_MAX: usize = 8;

type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Resolves the addresses of a name.
pub(super) trait Resolve: Send + Sync + 'static {
    /// All addresses of `host`, best first.
    fn resolve(&self, host: &str) -> Later<io::Result<Vec<IpAddr>>>;
}

/// The resolver of the operating system.
pub(super) struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str) -> Later<io::Result<Vec<IpAddr>>> {
        let host = host.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Why there is no connection. Nothing was sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("the address {address} of {host} is {range}; allow_private of this sink does not name it")]
    Forbidden { host: String, address: IpAddr, range: &'static str },
    #[error("the name {host} was not found: {why}")]
    Unresolved { host: String, why: String },
    #[error("no connection to {to}: {why}")]
    Unconnected { to: String, why: String },
    #[error("no TLS with {host}, its certificate or ours does not check out: {why}")]
    Certificate { host: String, why: String },
    #[error("no TLS with {host}: {why}")]
    Handshake { host: String, why: String },
    #[error("this process cannot open one more connection: {why}")]
    Exhausted { why: String },
}

impl ConnectError {
    /// The kind of this error for a target of all messages.
    pub(super) fn kind(&self) -> SinkErrorKind {
        match self {
            Self::Forbidden { .. } | Self::Certificate { .. } => SinkErrorKind::Misconfigured,
            Self::Unresolved { .. } | Self::Unconnected { .. } | Self::Handshake { .. } => {
                SinkErrorKind::Unreachable
            }
            Self::Exhausted { .. } => SinkErrorKind::Throttled,
        }
    }
}

/// Whether it is this machine that has no file, port or buffer left. No target is to blame for that.
fn is_exhausted(why: &io::Error) -> bool {
    // ENFILE, EMFILE and ENOBUFS of Linux; the standard library has no names for them.
    why.kind() == io::ErrorKind::AddrNotAvailable || matches!(why.raw_os_error(), Some(23 | 24 | 105))
}

/// Makes connections. Cloning shares everything.
#[derive(Clone)]
pub(super) struct Connector {
    parts: Arc<Parts>,
}

struct Parts {
    resolver: Arc<dyn Resolve>,
    rule: AddressRule,
    tls: Tls,
    clock: Arc<dyn Clock>,
    count: Count,
    certificate_faults: Arc<CertificateFaults>,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = ConnectError;
    type Future = Later<Result<Self::Response, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let parts = self.parts.clone();
        Box::pin(async move { parts.connect(&uri).await.map(TokioIo::new) })
    }
}

impl Connector {
    pub(super) fn new(
        resolver: Arc<dyn Resolve>,
        rule: AddressRule,
        tls: Tls,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let certificate_faults = CertificateFaults::new(clock.clone());
        Self {
            parts: Arc::new(Parts {
                resolver,
                rule,
                tls,
                clock,
                count: Count::default(),
                certificate_faults,
            }),
        }
    }

    /// The same with other TLS. Both count their connections together.
    pub(super) fn with_tls(&self, tls: Tls) -> Self {
        let Parts { resolver, rule, clock, count, .. } = &*self.parts;
        let (resolver, rule, clock, count) = (resolver.clone(), rule.clone(), clock.clone(), count.clone());
        let certificate_faults = CertificateFaults::new(clock.clone());
        Self { parts: Arc::new(Parts { resolver, rule, tls, clock, count, certificate_faults }) }
    }

    pub(super) fn certificate_faults(&self) -> &CertificateFaults {
        &self.parts.certificate_faults
    }

    /// Connections that are open or being made.
    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        self.parts.count.now()
    }
}

impl Parts {
    async fn connect(&self, uri: &Uri) -> Result<Stream, ConnectError> {
        let is_tls = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default();
        // An IPv6 address stands in brackets in an address, and without them everywhere else.
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let end = self.clock.now().mono().saturating_add(CONNECT_TIMEOUT);
        let counted = self.count.add();
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let watch = CertificateWatch::new(self.certificate_faults.clone(), authority);

        let found = within(&*self.clock, end, self.resolve(host));
        let found =
            found.await.unwrap_or_else(|| Err(unresolved(host, "the resolver did not answer in time")))?;
        let stream = self.reach(host, port, &self.checked(host, found)?, end).await?;
        if !is_tls {
            return Ok(Stream::new(stream, false, counted, watch));
        }
        let name = ServerName::try_from(host.to_owned())
            .map_err(|why| ConnectError::Certificate { host: host.into(), why: why.to_string() })?;
        // HTTP/2 is for connections that are kept: one for a single request would be kept by the pool all the same.
        let connector = if counted.is_kept { &self.tls.any } else { &self.tls.http1 };
        match within(&*self.clock, end, connector.connect(name, stream)).await {
            Some(Ok(stream)) => {
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(tls::HTTP_2);
                Ok(Stream::new(stream, is_http2, counted, watch))
            }
            Some(Err(why)) => Err(not_secured(host, &why)),
            None => Err(ConnectError::Handshake { host: host.into(), why: "no answer in time".into() }),
        }
    }

    async fn resolve(&self, host: &str) -> Result<Vec<IpAddr>, ConnectError> {
        match host.parse() {
            Ok(address) => Ok(vec![address]),
            Err(_) => self.resolver.resolve(host).await.map_err(|why| unresolved(host, &why.to_string())),
        }
    }

    /// The addresses that may be connected to, or the reason why there is none.
    fn checked(&self, host: &str, found: Vec<IpAddr>) -> Result<Vec<IpAddr>, ConnectError> {
        let mut refusal = unresolved(host, "it has no address");
        let mut good = Vec::new();
        for address in found {
            match self.rule.check(address) {
                Ok(()) => good.push(address),
                Err(range) => refusal = ConnectError::Forbidden { host: host.into(), address, range },
            }
        }
        good.truncate(ADDRESSES_MAX);
        if good.is_empty() { Err(refusal) } else { Ok(good) }
    }

    /// Tries one address after the other, each with its share of the time that is left.
    async fn reach(
        &self,
        host: &str,
        port: u16,
        addresses: &[IpAddr],
        end: Monotonic,
    ) -> Result<TcpStream, ConnectError> {
        let mut failure = unresolved(host, "it has no address");
        for (index, address) in addresses.iter().enumerate() {
            let now = self.clock.now().mono();
            let others = u32::try_from(addresses.len() - index).unwrap_or(1).max(1);
            let turn = now.saturating_add(end.since(now) / others);
            let to = SocketAddr::new(*address, port);
            let why = match within(&*self.clock, turn, TcpStream::connect(to)).await {
                Some(Ok(stream)) => {
                    // A request is written whole; waiting to fill a packet would only delay it.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Some(Err(why)) if is_exhausted(&why) => {
                    return Err(ConnectError::Exhausted { why: why.to_string() });
                }
                Some(Err(why)) => why.to_string(),
                None => "no answer in time".into(),
            };
            failure = ConnectError::Unconnected { to: to.to_string(), why };
        }
        Err(failure)
    }
}

fn unresolved(host: &str, why: &str) -> ConnectError {
    ConnectError::Unresolved { host: host.into(), why: why.into() }
}

fn not_secured(host: &str, why: &io::Error) -> ConnectError {
    let (host, words) = (host.to_owned(), why.to_string());
    if is_certificate_io_fault(why) {
        ConnectError::Certificate { host, why: words }
    } else {
        ConnectError::Handshake { host, why: words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_machine_has_run_out_of_is_no_targets_fault() {
        // No file of the system, of the process, no buffer, no port (EADDRNOTAVAIL).
        for code in [23, 24, 105, 99] {
            assert!(is_exhausted(&io::Error::from_raw_os_error(code)), "{code}");
        }
        // Refused, no route, timed out, not permitted.
        for code in [111, 113, 110, 1] {
            assert!(!is_exhausted(&io::Error::from_raw_os_error(code)), "{code}");
        }
        let exhausted = ConnectError::Exhausted { why: "no port".into() };
        assert_eq!(exhausted.kind(), SinkErrorKind::Throttled);
    }
}
