//! The connection: made when it is needed, shared by all calls, made anew when it broke.

use std::sync::{Arc, Mutex, PoisonError};

use duly_core::SinkError;
use futures_util::StreamExt;
use lapin::{
    Channel, Connection, ConnectionProperties, Event,
    options::ConfirmSelectOptions,
    tcp::{AMQPUriTcpExt, RustlsConnector},
    uri::{AMQPScheme, AMQPUri},
};
use tokio::sync::{self, watch};

use super::{
    failure::{no_connection, unconnected},
    settings::Settings,
};

/// Channels that are kept for the next call.
const CHANNELS_IDLE_MAX: usize = 8;

/// How connections are made, and the one that stands.
#[derive(Default)]
pub(super) struct Link {
    standing: sync::Mutex<Standing>,
}

#[derive(Default)]
struct Standing {
    wire: Option<Wire>,
    serial: u64,
}

/// An open connection.
#[derive(Clone)]
pub(super) struct Wire {
    serial: u64,
    connection: Arc<Connection>,
    idle: Arc<Mutex<Vec<Channel>>>,
    /// Why the broker takes no messages now, if so.
    blocked: watch::Receiver<Option<String>>,
}

impl Link {
    /// The connection that stands, or a new one.
    pub(super) async fn wire(&self, settings: &Settings) -> Result<Wire, SinkError> {
        let mut standing = self.standing.lock().await;
        if let Some(wire) = standing.wire.as_ref().filter(|wire| wire.connection.status().connected()) {
            return Ok(wire.clone());
        }
        standing.wire = None;
        standing.serial += 1;
        let wire = Wire::connect(settings, standing.serial).await?;
        standing.wire = Some(wire.clone());
        Ok(wire)
    }

    /// Gives up a connection that broke, unless another has taken its place.
    pub(super) async fn drop_wire(&self, broken: &Wire) {
        let mut standing = self.standing.lock().await;
        if standing.wire.as_ref().is_some_and(|wire| wire.serial == broken.serial) {
            standing.wire = None;
        }
    }
}

/// A new connection.
pub(super) async fn connect(settings: &Settings) -> Result<Connection, SinkError> {
    let properties = ConnectionProperties::default().with_connection_name("duly".into());
    let tls = settings.tls.clone().map(RustlsConnector::from);
    let runtime = lapin::runtime::default_runtime().map_err(|error| unconnected(&error))?;
    // The way of the client trusts the authorities of the system besides ours.
    let connect = async move |uri: AMQPUri, runtime| {
        let plain = AMQPUri { scheme: AMQPScheme::AMQP, ..uri.clone() };
        let stream = plain.connect_async(&runtime).await?;
        match &tls {
            None => Ok(stream),
            Some(tls) => Ok(stream.into_rustls(tls, &uri.authority.host).await?),
        }
    };
    let connected = Connection::connector(settings.uri.clone(), runtime, connect, properties).await;
    connected.map_err(|error| unconnected(&error))
}

impl Wire {
    async fn connect(settings: &Settings, serial: u64) -> Result<Self, SinkError> {
        let connection = connect(settings).await?;
        let (tell, blocked) = watch::channel(None);
        let mut events = connection.events_listener();
        // Ends with the connection.
        tokio::spawn(async move {
            while let Some(event) = events.next().await {
                match event {
                    Event::ConnectionBlocked(reason) => tell.send_replace(Some(reason)),
                    Event::ConnectionUnblocked => tell.send_replace(None),
                    _ => continue,
                };
            }
        });
        Ok(Self { serial, connection: Arc::new(connection), idle: Arc::default(), blocked })
    }

    /// A channel that confirms, and that nobody else uses.
    pub(super) async fn channel(&self) -> Result<Channel, SinkError> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(channel) = kept.filter(|channel| channel.status().connected()) {
            return Ok(channel);
        }
        let channel =
            self.connection.create_channel().await.map_err(|error| no_connection(error.to_string()))?;
        let confirms = channel.confirm_select(ConfirmSelectOptions::default()).await;
        confirms.map_err(|error| no_connection(error.to_string()))?;
        Ok(channel)
    }

    /// Takes back a channel on which nothing is under way any more.
    pub(super) fn keep(&self, channel: Channel) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < CHANNELS_IDLE_MAX && channel.status().connected() {
            idle.push(channel);
        }
    }

    /// Why the broker takes no messages now, if so.
    pub(super) fn is_blocked(&self) -> Option<String> {
        self.blocked.borrow().clone()
    }

    /// Returns when the broker takes no more messages, with its reason; never, if the connection ends.
    pub(super) async fn blocked(&self) -> String {
        let mut blocked = self.blocked.clone();
        let reason = match blocked.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone(),
            Err(_) => None,
        };
        match reason {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }
}
