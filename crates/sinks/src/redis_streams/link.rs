//! The connection: made when it is needed, shared by all calls, made anew when it broke.

use duly_core::{Invalid, SinkError, SinkErrorKind};
use futures_util::future::join_all;
use redis::{
    AsyncConnectionConfig, Client, Cmd, FromRedisValue, Pipeline, RedisError, TlsCertificates, TlsMode,
    Value,
    aio::{ConnectionLike, MultiplexedConnection},
    cluster::ClusterClient,
    cluster_async::ClusterConnection,
    cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};
use tokio::sync::Mutex;

use super::{
    address::Address,
    failure::{sorted, unconnected},
    settings::Settings,
};

/// What is older has no flags for scripts.
const VERSION_MIN: (u32, u32) = (7, 0);

/// How often a cluster is asked again where a slot is, and the longest wait between two times.
const CLUSTER_RETRIES: u32 = 4;
const CLUSTER_WAIT_MS_MAX: u64 = 250;

/// How connections are made, and the one that stands.
pub(super) struct Link {
    way: Way,
    wire: Mutex<Standing>,
}

enum Way {
    Single(Box<Client>),
    Cluster(Box<ClusterClient>),
    // Asking sentinels changes what it keeps of them.
    Sentinel(Box<Mutex<SentinelClient>>),
}

#[derive(Default)]
struct Standing {
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
        let way = Way::new(settings)
            .map_err(|error| Invalid::new("bad_sink", "url", format!("it cannot be used: {error}")))?;
        Ok(Self { way, wire: Mutex::default() })
    }

    /// The connection that stands, or a new one.
    pub(super) async fn wire(&self) -> Result<Wire, SinkError> {
        let mut standing = self.wire.lock().await;
        if let Some(wire) = &standing.wire {
            return Ok(wire.clone());
        }
        let kind = self.way.connect().await.map_err(|error| unconnected(&error))?;
        standing.serial += 1;
        let mut wire = Wire { serial: standing.serial, kind };
        wire.check_version().await?;
        standing.wire = Some(wire.clone());
        Ok(wire)
    }

    /// Gives up a connection that broke, unless another has taken its place.
    pub(super) async fn drop_wire(&self, broken: &Wire) {
        let mut standing = self.wire.lock().await;
        if standing.wire.as_ref().is_some_and(|wire| wire.serial == broken.serial) {
            standing.wire = None;
        }
    }
}

impl Way {
    fn new(settings: &Settings) -> Result<Self, RedisError> {
        let certificates = settings
            .authorities
            .as_ref()
            .map(|pem| TlsCertificates { client_tls: None, root_cert: Some(pem.clone()) });
        Ok(match &settings.address {
            Address::Single(info) => Self::Single(Box::new(match certificates {
                Some(certificates) => Client::build_with_tls(info.clone(), certificates)?,
                None => Client::open(info.clone())?,
            })),
            Address::Cluster(nodes) => {
                let mut builder = ClusterClient::builder(nodes.clone())
                    .retries(CLUSTER_RETRIES)
                    .max_retry_wait(CLUSTER_WAIT_MS_MAX)
                    .connection_timeout(settings.timeout / 2)
                    .response_timeout(settings.timeout)
                    .overall_response_timeout(None);
                if let Some(certificates) = certificates {
                    builder = builder.certs(certificates);
                }
                Self::Cluster(Box::new(builder.build()?))
            }
            Address::Sentinel { sentinels, name, redis, is_secure } => {
                let mut builder =
                    SentinelClientBuilder::new(sentinels.clone(), name, SentinelServerType::Master)?
                        .set_client_to_redis_db(redis.db());
                if let Some(user) = redis.username() {
                    builder = builder.set_client_to_redis_username(user);
                }
                if let Some(password) = redis.password() {
                    builder = builder.set_client_to_redis_password(password);
                }
                if *is_secure {
                    builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
                    builder = builder.set_client_to_sentinel_tls_mode(TlsMode::Secure);
                }
                if let Some(certificates) = certificates {
                    builder = builder.set_client_to_redis_certificates(certificates.clone());
                    builder = builder.set_client_to_sentinel_certificates(certificates);
                }
                Self::Sentinel(Box::new(Mutex::new(builder.build()?)))
            }
        })
    }

    /// Takes as long as it takes: the call that waits for it has an end.
    async fn connect(&self) -> Result<Kind, RedisError> {
        let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        Ok(match self {
            Self::Single(client) => {
                Kind::One(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
            Self::Cluster(client) => Kind::Cluster(client.get_async_connection().await?),
            Self::Sentinel(client) => {
                let master = client.lock().await.async_get_client().await?;
                Kind::One(master.get_multiplexed_async_connection_with_config(&config).await?)
            }
        })
    }
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

    /// Asks one server, of a cluster any.
    async fn ask_one(&mut self, command: Cmd) -> Result<Value, RedisError> {
        let answer = match &mut self.kind {
            Kind::One(connection) => connection.req_packed_command(&command).await,
            Kind::Cluster(connection) => {
                let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
                connection.route_command(command, anywhere).await
            }
        };
        answer?.extract_error()
    }

    /// Whether it answers, lets us run scripts, and, if it is a cluster, is whole.
    pub(super) async fn ask_how_it_is(mut self, sha: &str) -> Result<(), SinkError> {
        let mut exists = redis::cmd("SCRIPT");
        exists.arg("EXISTS").arg(sha);
        self.ask_one(exists).await.map_err(|error| probed(&error))?;
        if let Kind::Cluster(_) = self.kind {
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
    let error = sorted(error);
    let kind = if error.kind == SinkErrorKind::Unknown { SinkErrorKind::Unreachable } else { error.kind };
    SinkError { kind, ..error }
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
