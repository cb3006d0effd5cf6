//! The connection: opened on demand, shared by all calls, replaced when it breaks.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use duly_core::{Clock, SinkError, SinkErrorKind};
use futures_util::future::join_all;
use lapin::{
    Connection, ConnectionProperties,
    tcp::{AsyncTcpStream, RustlsConnector},
    uri::AMQPUri,
};
use tokio::sync;

use super::{connection::BrokerConnection, failure::connect_failed, settings::Settings};
use crate::within::within;

/// One address is given no less than this to accept a connection, however many there are.
const ADDRESS_TIME_MIN: Duration = Duration::from_millis(500);
/// Names must be resolved within this part of the time.
const LOOKUP_SHARE: u32 = 4;

/// The current connection, and how to open another.
#[derive(Default)]
pub(super) struct Link {
    /// Locked for a moment only, so that dropping a connection never waits.
    standing: Mutex<Option<BrokerConnection>>,
    /// Locked while a call connects. The others wait for that connection.
    connecting: sync::Mutex<()>,
    /// The address that is tried first, counted through all of them: one that failed is not the first of the next call.
    first: AtomicUsize,
}

impl Link {
    /// The current connection, or a new one.
    pub(super) async fn connection(
        &self,
        settings: &Settings,
        clock: &Arc<dyn Clock>,
        time_limit: Duration,
    ) -> Result<BrokerConnection, SinkError> {
        if let Some(connection) = self.standing() {
            return Ok(connection);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(connection) = self.standing() {
            return Ok(connection);
        }
        let connection =
            BrokerConnection::new(connect(settings, &**clock, time_limit, &self.first).await?, clock.clone());
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
        Ok(connection)
    }

    fn standing(&self) -> Option<BrokerConnection> {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.take_if(|connection| !connection.is_connected());
        standing.clone()
    }

    /// Drops a broken connection, unless another has replaced it.
    pub(super) fn drop_connection(&self, broken: &BrokerConnection) {
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        standing.take_if(|connection| connection.is(broken));
    }
}

/// A new connection to the first address that accepts one, all of them tried within about this time.
///
/// Every address of a node's name is tried: a dead first address does no harm.
pub(super) async fn connect(
    settings: &Settings,
    clock: &dyn Clock,
    time_limit: Duration,
    first: &AtomicUsize,
) -> Result<Connection, SinkError> {
    let found = addresses(settings, clock, time_limit / LOOKUP_SHARE).await?;
    let each = (time_limit / u32::try_from(found.len().max(1)).unwrap_or(u32::MAX))
        .max(ADDRESS_TIME_MIN.min(time_limit));
    let mut worst: Option<SinkError> = None;
    for _ in 0..found.len() {
        let (uri, address) = &found[first.load(Ordering::Relaxed) % found.len()];
        let end = clock.now().mono().saturating_add(each);
        // Before the try, which may be given up at any moment.
        first.fetch_add(1, Ordering::Relaxed);
        let tried = within(clock, end, connect_to(settings, uri, *address)).await;
        let late = || Err(SinkError::unreachable(format!("{address} did not answer within {each:?}")));
        match tried.unwrap_or_else(late) {
            Ok(connection) => {
                first.fetch_sub(1, Ordering::Relaxed);
                return Ok(connection);
            }
            // A refused login says more than an unreachable node.
            Err(failure) if worst.as_ref().is_none_or(|state| state.kind == SinkErrorKind::Unreachable) => {
                worst = Some(failure);
            }
            Err(_) => {}
        }
    }
    Err(worst.unwrap_or_else(|| SinkError::unreachable("there is no address to connect to")))
}

/// All addresses of all nodes. A name that is not resolved within this time holds up no other.
async fn addresses(
    settings: &Settings,
    clock: &dyn Clock,
    time_limit: Duration,
) -> Result<Vec<(AMQPUri, SocketAddr)>, SinkError> {
    let end = clock.now().mono().saturating_add(time_limit);
    let each = settings.uris.iter().map(|uri| async move {
        let host = uri.authority.host.trim_start_matches('[').trim_end_matches(']');
        let resolved = within(clock, end, tokio::net::lookup_host((host, uri.authority.port))).await;
        let late = || Err("its addresses were not found in time".to_owned());
        let resolved = resolved.map_or_else(late, |found| found.map_err(|why| why.to_string()));
        let addresses = resolved.map_err(|why| SinkError::unreachable(format!("{host}: {why}")))?;
        Ok(addresses.map(|address| (uri.clone(), address)).collect::<Vec<_>>())
    });
    let (mut found, mut unknown) = (Vec::new(), None);
    for resolved in join_all(each).await {
        match resolved {
            Ok(addresses) => found.extend(addresses),
            Err(failure) => unknown = Some(failure),
        }
    }
    match unknown {
        Some(failure) if found.is_empty() => Err(failure),
        _ => Ok(found),
    }
}

async fn connect_to(
    settings: &Settings,
    uri: &AMQPUri,
    address: SocketAddr,
) -> Result<Connection, SinkError> {
    let properties = ConnectionProperties::default().with_connection_name("duly".into());
    let tls = settings.tls.clone().map(RustlsConnector::from);
    let runtime = lapin::runtime::default_runtime().map_err(|error| connect_failed(&error))?;
    // The way of the client trusts the authorities of the system besides ours.
    let connect = async move |uri: AMQPUri, runtime| {
        let stream = AsyncTcpStream::connect(&runtime, address).await?;
        match &tls {
            None => Ok(stream),
            Some(tls) => Ok(stream.into_rustls(tls, &uri.authority.host).await?),
        }
    };
    let connected = Connection::connector(uri.clone(), runtime, connect, properties).await;
    connected.map_err(|error| connect_failed(&error))
}

#[cfg(test)]
mod tests {
    use duly::ManualClock;
    use futures_util::FutureExt;
    use testkit::servers::rabbitmq::silent_broker;

    use super::*;
    use crate::rabbitmq::RabbitmqConfig;

    async fn settings(logs_in: bool) -> Settings {
        let (port, _) = silent_broker(logs_in).await;
        let url = format!("url = 'amqp://guest:guest@127.0.0.1:{port}'");
        Settings::read(&toml::from_str::<RabbitmqConfig>(&url).unwrap()).unwrap()
    }

    #[tokio::test]
    async fn giving_up_a_connection_waits_for_nobody_who_connects() {
        let (standing, mute) = (settings(true).await, settings(false).await);
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
        let (link, time_limit) = (Link::default(), Duration::from_secs(10));
        let connection = link.connection(&standing, &clock, time_limit).await.unwrap();
        link.drop_connection(&connection);
        let mut connecting = std::pin::pin!(link.connection(&mute, &clock, time_limit));
        assert!(connecting.as_mut().now_or_never().is_none(), "it waits for a broker that is silent");
        assert!(link.connecting.try_lock().is_err(), "and others wait for it");
        // Another call that had the same connection. If it waited, time would stand still.
        link.drop_connection(&connection);
        assert!(link.standing().is_none());
    }
}
