//! The connection: opened on demand, shared by all calls, replaced when it breaks.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use async_nats::{Client, ConnectOptions, Event, ServerError};
use duly_core::SinkError;
use tokio::sync::{Mutex, broadcast};

use super::{
    ask,
    core::protocol::denied,
    failure::connect_failed,
    settings::{Login, Settings},
};

/// Maximum of commands that are queued for the connection. Callers wait for room.
const COMMANDS_MAX: usize = 1_024;
/// Maximum of buffered events for each call. A call that misses one learns the outcome by its time limit.
const EVENTS_MAX: usize = 256;
/// Messages without an answer that a connection may remember. The client keeps something of each until the connection ends, so
/// that a silent stream would cost more and more memory; with more, the next call connects anew.
const UNANSWERED_MAX: usize = 10_000;
/// Prefix of the server's error when the user may not subscribe to the inbox.
const NO_INBOX: &str = "Permissions Violation for Subscription to ";

/// The current connection, and how to open another.
pub(super) struct Link {
    standing: Mutex<Standing>,
}

#[derive(Default)]
struct Standing {
    connection: Option<Connection>,
    serial: u64,
}

/// An open connection.
#[derive(Clone)]
pub(super) struct Connection {
    serial: u64,
    pub(super) client: Client,
    is_broken: Arc<AtomicBool>,
    /// Messages whose answers nobody waits for any more.
    unanswered: Arc<AtomicUsize>,
    events: broadcast::Sender<ConnectionEvent>,
}

/// Events of a connection besides answers.
#[derive(Debug, Clone)]
pub(super) enum ConnectionEvent {
    /// The connection was lost: messages without an answer may have arrived, and no answer will come.
    Broken,
    /// The user may not publish to this subject.
    Denied { subject: String, words: String },
    /// The user may not subscribe to the inbox: no answer will arrive.
    Deaf { words: String },
}

impl Link {
    pub(super) fn new() -> Self {
        Self { standing: Mutex::default() }
    }

    /// The current connection, or a new one.
    pub(super) async fn connection(&self, settings: &Settings) -> Result<Connection, SinkError> {
        let mut standing = self.standing.lock().await;
        if let Some(connection) =
            standing.connection.as_ref().filter(|connection| !connection.is_broken() && !connection.is_worn())
        {
            return Ok(connection.clone());
        }
        standing.connection = None;
        standing.serial += 1;
        let connection = Connection::connect(settings, standing.serial).await?;
        // Without the right to receive acknowledgements every outcome would be unknown.
        ask::has_read(&connection).await?;
        standing.connection = Some(connection.clone());
        Ok(connection)
    }

    /// Gives up a connection that broke, unless another has taken its place.
    pub(super) async fn drop_connection(&self, broken: &Connection) {
        let mut standing = self.standing.lock().await;
        if standing.connection.as_ref().is_some_and(|connection| connection.serial == broken.serial) {
            standing.connection = None;
        }
    }
}

impl Connection {
    async fn connect(settings: &Settings, serial: u64) -> Result<Self, SinkError> {
        let is_broken = Arc::new(AtomicBool::new(false));
        let (events, _) = broadcast::channel(EVENTS_MAX);
        let theirs = (is_broken.clone(), events.clone());
        let on_event = move |event| {
            let (is_broken, events) = theirs.clone();
            async move { on_event(event, &is_broken, &events) }
        };
        let options = ConnectOptions::new()
            .name("duly")
            .event_callback(on_event)
            .client_capacity(COMMANDS_MAX)
            .connection_timeout(settings.connect_share())
            .request_timeout(None)
            // The client would go on by itself and send later what its caller has given up. It may try each server once, and
            // nobody uses it any more: we make another.
            .max_reconnects(settings.servers.len())
            .ignore_discovered_servers()
            .require_tls(settings.is_secure)
            .tls_client_config(settings.tls.clone());
        let options = match &settings.login {
            Login::Nobody => options,
            Login::Token(token) => options.token(token.clone()),
            Login::User(user, password) => options.user_and_password(user.clone(), password.clone()),
            Login::Creds(text) => options
                .credentials(text)
                .map_err(|_| SinkError::unreachable("the credentials cannot be used"))?,
        };
        let client = options.connect(&settings.servers[..]).await.map_err(|error| connect_failed(&error))?;
        Ok(Self { serial, client, is_broken, unanswered: Arc::default(), events })
    }

    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::SeqCst)
    }

    /// Whether too many messages without an answer are held in memory.
    fn is_worn(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) > UNANSWERED_MAX
    }

    /// Counts sent messages whose answers nobody waits for any more.
    pub(super) fn give_up(&self, count: usize) {
        self.unanswered.fetch_add(count, Ordering::Relaxed);
    }

    /// Its events from now on.
    pub(super) fn listen(&self) -> broadcast::Receiver<ConnectionEvent> {
        self.events.subscribe()
    }
}

fn on_event(event: Event, is_broken: &AtomicBool, events: &broadcast::Sender<ConnectionEvent>) {
    let event = match event {
        Event::Disconnected | Event::Closed => {
            is_broken.store(true, Ordering::SeqCst);
            ConnectionEvent::Broken
        }
        Event::ServerError(ServerError::Other(words)) if words.starts_with(NO_INBOX) => {
            is_broken.store(true, Ordering::SeqCst);
            ConnectionEvent::Deaf { words }
        }
        Event::ServerError(ServerError::Other(words)) => {
            let Some(subject) = denied(&words) else { return };
            ConnectionEvent::Denied { subject, words }
        }
        _ => return,
    };
    // Nobody may be listening.
    let _ = events.send(event);
}
