//! Connects to one of several hosts, each of which may have several addresses.

use std::{
    net::SocketAddr,
    sync::{Mutex, PoisonError},
};

use duly_core::{Clock, Monotonic, SinkError, SinkErrorKind};
use tokio::net::{TcpStream, lookup_host};

use super::{
    Protocol,
    address::{Address, Host},
    connect_failed,
};
use crate::{link::Link, tls, within::within};

/// Finds a host that accepts the login, and remembers it.
#[derive(Debug)]
pub(super) struct Dialer {
    address: Address,
    /// Where the last connection was made: the host's place in the list, and which of its addresses.
    last: Mutex<(usize, Option<SocketAddr>)>,
}

impl Dialer {
    pub(super) fn new(address: Address) -> Self {
        Self { address, last: Mutex::new((0, None)) }
    }

    /// A connection to the first host that lets us in, beginning with the one that last did. Each host has its share of the time, and
    /// each of its addresses: one that is dead does not use up all of it.
    pub(super) async fn dial<P: Protocol>(
        &self,
        protocol: &P,
        clock: &dyn Clock,
        until: Monotonic,
    ) -> Result<(Link, P::Session), SinkError> {
        let hosts = &self.address.hosts;
        let (first, known) = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failures = Vec::new();
        for turn in 0..hosts.len() {
            let position = (first + turn) % hosts.len();
            let host = &hosts[position];
            let end = share(clock, until, hosts.len() - turn);
            let found = within(clock, end, lookup_host((host.name.as_str(), host.port))).await;
            let late = || Err(SinkError::unreachable("its name was not found in time"));
            let mut found: Vec<_> =
                match found.map_or_else(late, |found| found.map_err(|why| connect_failed(&why))) {
                    Ok(found) => found.collect(),
                    Err(failure) => {
                        failures.push((host, failure));
                        continue;
                    }
                };
            // A stable sort: the one that last worked comes first, the others as they are.
            found.sort_by_key(|at| Some(*at) != known);
            let count = found.len();
            for (nth, at) in found.into_iter().enumerate() {
                let end = share(clock, end, count - nth);
                let made = within(clock, end, self.connect(protocol, host, at)).await;
                match made.unwrap_or_else(|| Err(SinkError::unreachable("no connection in time"))) {
                    Ok(made) => {
                        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = (position, Some(at));
                        return Ok(made);
                    }
                    Err(failure) => failures.push((host, failure)),
                }
            }
        }
        Err(summary(&failures))
    }

    async fn connect<P: Protocol>(
        &self,
        protocol: &P,
        host: &Host,
        at: SocketAddr,
    ) -> Result<(Link, P::Session), SinkError> {
        let stream = TcpStream::connect(at).await.map_err(|why| connect_failed(&why))?;
        let stream = tls::connect(self.address.tls.as_ref(), &host.name, stream).await;
        let mut link = Link::over(stream.map_err(|why| connect_failed(&why))?);
        let session = protocol.log_in(&mut link, &self.address, &host.name).await?;
        Ok((link, session))
    }
}

/// The end of the time for the first of `left`, who share what is left of it.
fn share(clock: &dyn Clock, until: Monotonic, left: usize) -> Monotonic {
    let now = clock.now().mono();
    now.saturating_add(until.since(now) / u32::try_from(left.max(1)).unwrap_or(u32::MAX))
}

/// One error for all hosts: a misconfiguration if one host reported it, else the first.
fn summary(failures: &[(&Host, SinkError)]) -> SinkError {
    let is_ours = |(_, failure): &&(&Host, SinkError)| failure.kind == SinkErrorKind::Misconfigured;
    let main = failures.iter().find(is_ours).or(failures.first());
    let Some((_, main)) = main else { return SinkError::unreachable("the name of the host has no address") };
    let details: Vec<String> = match failures {
        [_] => return main.clone(),
        _ => failures
            .iter()
            .map(|(host, failure)| format!("{}:{}: {}", host.name, host.port, failure.detail))
            .collect(),
    };
    let mut all = main.clone();
    all.detail = details.join("; ");
    all
}
