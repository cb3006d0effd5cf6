//! The connection: made when it is needed, shared by all calls, made anew when it broke.

use duly_core::{ErrorCode, Invalid, SinkError, SinkErrorKind};
use futures_util::{
    StreamExt,
    future::{join_all, select_ok},
    stream::FuturesUnordered,
};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster_async::ClusterConnection,
    cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
};
use redis_link::{Clients, Reach};
use tokio::sync::Mutex;

use super::{
    failure::{connect_failed, sorted},
    settings::Settings,
};

/// What is older has no flags for scripts.
const VERSION_MIN: (u32, u32) = (7, 0);

/// Servers of a cluster that are asked for one answer, drawn by lot: that all of them are the one that is away is unlikely.
const ASKED: usize = 8;

/// How connections are made, and the one that stands.
pub(super) struct Link {
    standing: Mutex<Standing>,
}

struct Standing {
    clients: Clients,
    /// Servers of a cluster that are asked why it cannot be connected to.
    seeds: Vec<Client>,
    connection: Option<Connection>,
    serial: u64,
}

/// An open connection, to one server or to a cluster.
#[derive(Clone)]
pub(super) struct Connection {
    serial: u64,
    kind: ConnectionKind,
}

#[derive(Clone)]
enum ConnectionKind {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Link {
    pub(super) fn new(settings: &Settings) -> Result<Self, Invalid> {
        let reach = Reach {
            connect_within: settings.timeout / 2,
            answer_within: settings.timeout,
            redirect_within: None,
            authorities: settings.authorities.clone(),
            identity: settings.identity.clone(),
        };
        let fault = |error: RedisError| {
            Invalid::new(ErrorCode::BadSink, "url", format!("it cannot be used: {error}"))
        };
        let clients = Clients::new(&settings.address, &reach).map_err(fault)?;
        let seeds = reach.tls_seeds(&settings.address).map_err(fault)?;
        Ok(Self { standing: Mutex::new(Standing { clients, seeds, connection: None, serial: 0 }) })
    }

    /// The connection that stands, or a new one.
    pub(super) async fn connection(&self) -> Result<Connection, SinkError> {
        let mut standing = self.standing.lock().await;
        if let Some(connection) = &standing.connection {
            return Ok(connection.clone());
        }
        let kind = match connect(&mut standing.clients).await {
            Ok(kind) => kind,
            Err(error) => {
                let refusal = refusal(&standing.seeds).await;
                return Err(refusal.unwrap_or_else(|| connect_failed(&error)));
            }
        };
        standing.serial += 1;
        let mut connection = Connection { serial: standing.serial, kind };
        connection.check_version().await?;
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

/// The first of the servers that lets nobody in, for a certificate or a password: that is no outage.
async fn refusal(seeds: &[Client]) -> Option<SinkError> {
    let config = patient();
    let ask = |client: &Client| {
        let (client, config) = (client.clone(), config.clone());
        async move { client.get_multiplexed_async_connection_with_config(&config).await.err() }
    };
    let mut reply: FuturesUnordered<_> = seeds.iter().map(ask).collect();
    while let Some(error) = reply.next().await {
        let failure = error.map(|error| connect_failed(&error));
        if let Some(failure) = failure.filter(|failure| failure.kind == SinkErrorKind::Misconfigured) {
            return Some(failure);
        }
    }
    None
}

/// Takes as long as it takes: the call that waits for a connection has an end.
fn patient() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None)
}

async fn connect(clients: &mut Clients) -> Result<ConnectionKind, RedisError> {
    let config = patient();
    Ok(match clients {
        Clients::Single(client) => {
            ConnectionKind::One(client.get_multiplexed_async_connection_with_config(&config).await?)
        }
        Clients::Cluster(client) => ConnectionKind::Cluster(client.get_async_connection().await?),
        Clients::Sentinel(client) => {
            let master = client.async_get_client().await?;
            ConnectionKind::One(master.get_multiplexed_async_connection_with_config(&config).await?)
        }
        _ => return Err((ErrorKind::InvalidClientConfig, "an address of a kind that is not known").into()),
    })
}

impl Connection {
    /// Sends the commands together and gives their answers, in order. On one server that is one round trip.
    pub(super) async fn ask(&mut self, commands: Vec<Cmd>) -> Vec<Result<Value, RedisError>> {
        let count = commands.len();
        match &mut self.kind {
            ConnectionKind::One(connection) => {
                let mut pipeline = Pipeline::with_capacity(count);
                for command in commands {
                    pipeline.add_command(command);
                }
                match connection.send_packed_commands(&pipeline, 0, count).await {
                    Ok(values) => values.into_iter().map(Value::extract_error).collect(),
                    Err(error) => vec![Err(error); count],
                }
            }
            ConnectionKind::Cluster(connection) => {
                let each = commands.into_iter().map(|command| {
                    let mut connection = connection.clone();
                    async move { connection.req_packed_command(&command).await?.extract_error() }
                });
                join_all(each).await
            }
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.kind, ConnectionKind::Cluster(_))
    }

    /// Asks one server, of a cluster some: the first answer counts, so that one that is away hides no other.
    async fn ask_one(&mut self, command: Cmd) -> Result<Value, RedisError> {
        self.ask_for(command, |_| true).await
    }

    /// The same; of a cluster the first answer that is `good`, or an error.
    async fn ask_for(
        &mut self,
        command: Cmd,
        good: impl Fn(&Value) -> bool + Copy + Send,
    ) -> Result<Value, RedisError> {
        let answer = match &mut self.kind {
            ConnectionKind::One(connection) => connection.req_packed_command(&command).await,
            ConnectionKind::Cluster(connection) => {
                // The client's own way of asking all waits while one of them is silent.
                let asking = (0..ASKED).map(|_| {
                    let (mut connection, command) = (connection.clone(), command.clone());
                    let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
                    Box::pin(async move {
                        let answer = connection.route_command(command, anywhere).await?;
                        let is_good = good(&answer);
                        is_good.then_some(answer).ok_or_else(|| {
                            RedisError::from((
                                ErrorKind::ClusterConnectionNotFound,
                                "the cluster is not whole",
                            ))
                        })
                    })
                });
                select_ok(asking).await.map(|(answer, _)| answer)
            }
        };
        answer?.extract_error()
    }

    /// Whether it answers, lets us run scripts, and, if it is a cluster, serves what it can.
    pub(super) async fn ask_how_it_is(mut self, sha: &str) -> Result<(), SinkError> {
        let mut exists = redis::cmd("SCRIPT");
        exists.arg("EXISTS").arg(sha);
        self.ask_one(exists).await.map_err(|error| probed(&error))?;
        if self.is_cluster() {
            let mut info = redis::cmd("CLUSTER");
            info.arg("INFO");
            // A server that has just returned says for seconds that it is not.
            self.ask_for(info, is_whole).await.map_err(|error| probed(&error))?;
        }
        Ok(())
    }

    async fn check_version(&mut self) -> Result<(), SinkError> {
        let mut info = redis::cmd("INFO");
        info.arg("server");
        let text = match self.ask_one(info).await {
            Ok(value) => String::from_redis_value(value).unwrap_or_default(),
            // Whoever may not ask gets the benefit of the doubt.
            Err(error) if error.code() == Some("NOPERM") => return Ok(()),
            Err(error) => return Err(connect_failed(&error)),
        };
        match version(&text) {
            Some(version) if version < VERSION_MIN => {
                let detail = format!(
                    "this Redis is {}.{}, and {}.{} or newer is needed",
                    version.0, version.1, VERSION_MIN.0, VERSION_MIN.1
                );
                Err(SinkError::misconfigured(detail))
            }
            _ => Ok(()),
        }
    }
}

fn is_whole(info: &Value) -> bool {
    !String::from_redis_value_ref(info).is_ok_and(|info| info.contains("cluster_state:fail"))
}

/// A probe sends nothing that could arrive: no answer to it means that the target is away.
fn probed(error: &RedisError) -> SinkError {
    let (mut error, _) = sorted(error, false);
    if error.kind == SinkErrorKind::Unknown {
        error.kind = SinkErrorKind::Unreachable;
    }
    error
}

fn version(info: &str) -> Option<(u32, u32)> {
    let line = info.lines().find_map(|line| line.strip_prefix("redis_version:"))?;
    let mut numbers = line.trim().split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared_as_numbers() {
        assert_eq!(version("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n"), Some((7, 0)));
        assert_eq!(version("redis_version:10.2.0"), Some((10, 2)));
        assert!(version("redis_version:6.2.14").unwrap() < VERSION_MIN);
        assert_eq!(version("nothing"), None);
    }
}
