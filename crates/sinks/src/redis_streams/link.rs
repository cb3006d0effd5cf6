//! The connection: made when it is needed, shared by all calls, made anew when it broke.

use duly_core::{ErrorCode, Invalid, SinkError, SinkErrorKind};
use futures_util::future::{join_all, select_ok};
use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline, RedisError, Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster_async::ClusterConnection,
    cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
};
use redis_link::{Clients, Reach};
use tokio::sync::Mutex;

use super::{
    failure::{sorted, unconnected},
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
    wire: Option<Wire>,
    serial: u64,
}

/// An open connection, to one server or to a cluster.
#[derive(Clone)]
pub(super) struct Wire {
    serial: u64,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
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
        let clients = Clients::new(&settings.address, &reach).map_err(|error| {
            Invalid::new(ErrorCode::BadSink, "url", format!("it cannot be used: {error}"))
        })?;
        Ok(Self { standing: Mutex::new(Standing { clients, wire: None, serial: 0 }) })
    }

    /// The connection that stands, or a new one.
    pub(super) async fn wire(&self) -> Result<Wire, SinkError> {
        let mut standing = self.standing.lock().await;
        if let Some(wire) = &standing.wire {
            return Ok(wire.clone());
        }
        let kind = connect(&mut standing.clients).await.map_err(|error| unconnected(&error))?;
        standing.serial += 1;
        let mut wire = Wire { serial: standing.serial, kind };
        wire.check_version().await?;
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

/// Takes as long as it takes: the call that waits for it has an end.
async fn connect(clients: &mut Clients) -> Result<Kind, RedisError> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    Ok(match clients {
        Clients::Single(client) => {
            Kind::One(client.get_multiplexed_async_connection_with_config(&config).await?)
        }
        Clients::Cluster(client) => Kind::Cluster(client.get_async_connection().await?),
        Clients::Sentinel(client) => {
            let master = client.async_get_client().await?;
            Kind::One(master.get_multiplexed_async_connection_with_config(&config).await?)
        }
    })
}

impl Wire {
    /// Sends the commands together and gives their answers, in order. On one server that is one round trip.
    pub(super) async fn ask(&mut self, commands: Vec<Cmd>) -> Vec<Result<Value, RedisError>> {
        let count = commands.len();
        match &mut self.kind {
            Kind::One(connection) => {
                let mut pipeline = Pipeline::with_capacity(count);
                for command in commands {
                    pipeline.add_command(command);
                }
                match connection.send_packed_commands(&pipeline, 0, count).await {
                    Ok(values) => values.into_iter().map(Value::extract_error).collect(),
                    Err(error) => vec![Err(error); count],
                }
            }
            Kind::Cluster(connection) => {
                let each = commands.into_iter().map(|command| {
                    let mut connection = connection.clone();
                    async move { connection.req_packed_command(&command).await?.extract_error() }
                });
                join_all(each).await
            }
        }
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.kind, Kind::Cluster(_))
    }

    /// Asks one server, of a cluster some: the first answer counts, so that one that is away hides no other.
    async fn ask_one(&mut self, command: Cmd) -> Result<Value, RedisError> {
        let answer = match &mut self.kind {
            Kind::One(connection) => connection.req_packed_command(&command).await,
            Kind::Cluster(connection) => {
                // The client's own way of asking all waits while one of them is silent.
                let asking = (0..ASKED).map(|_| {
                    let (mut connection, command) = (connection.clone(), command.clone());
                    let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
                    Box::pin(async move { connection.route_command(command, anywhere).await })
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
            let info = self.ask_one(info).await.map_err(|error| probed(&error))?;
            if String::from_redis_value(info).is_ok_and(|info| info.contains("cluster_state:fail")) {
                return Err(SinkError::new(SinkErrorKind::Unreachable, "the cluster is not whole"));
            }
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
            Err(error) => return Err(unconnected(&error)),
        };
        match version(&text) {
            Some(version) if version < VERSION_MIN => {
                let detail = format!(
                    "this Redis is {}.{}, and {}.{} or newer is needed",
                    version.0, version.1, VERSION_MIN.0, VERSION_MIN.1
                );
                Err(SinkError::new(SinkErrorKind::Misconfigured, detail))
            }
            _ => Ok(()),
        }
    }
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
