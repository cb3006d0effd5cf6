//! What makes connections.

use std::time::Duration;

use redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, RedisResult, TlsCertificates, TlsMode,
    cluster::ClusterClient,
    sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType},
};

use crate::Address;

/// How often a cluster is asked again where a slot is, and the longest wait between two times.
const CLUSTER_RETRIES: u32 = 4;
const CLUSTER_WAIT_MS_MAX: u64 = 250;

/// How a Redis is reached.
#[derive(Debug, Clone)]
pub struct Reach {
    /// How long a connection may take to come about.
    pub connect_within: Duration,
    /// Whoever does not answer within this is taken for gone.
    pub answer_within: Duration,
    /// How long one call to a cluster may take with all its redirections; for ever if whoever calls looks after that.
    pub redirect_within: Option<Duration>,
    /// The certificate authorities, PEM, that are trusted instead of those of the system.
    pub authorities: Option<Vec<u8>>,
    /// By what we prove who we are to a server that asks.
    pub identity: Option<ClientIdentity>,
}

/// A client certificate, the client's own first in its chain, and its key, both PEM.
#[derive(Clone)]
pub struct ClientIdentity {
    /// The chain.
    pub cert: Vec<u8>,
    /// The key.
    pub key: Vec<u8>,
}

/// Never the key.
impl std::fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Reach {
    /// Calls that take a few milliseconds.
    pub const QUICK: Self = Self::within(Duration::from_secs(5));

    /// Calls that may take so long.
    pub const fn within(answer_within: Duration) -> Self {
        let connect_within = Duration::from_secs(2);
        let redirect_within = Some(answer_within);
        Self { connect_within, answer_within, redirect_within, authorities: None, identity: None }
    }

    fn certificates(&self) -> Option<TlsCertificates> {
        if self.authorities.is_none() && self.identity.is_none() {
            return None;
        }
        let client_tls = self
            .identity
            .clone()
            .map(|ClientIdentity { cert, key }| ClientTlsConfig { client_cert: cert, client_key: key });
        Some(TlsCertificates { client_tls, root_cert: self.authorities.clone() })
    }

    /// For one server.
    pub(crate) fn client(&self, info: &ConnectionInfo) -> RedisResult<Client> {
        match self.certificates() {
            Some(certificates) => Client::build_with_tls(info.clone(), certificates),
            None => Client::open(info.clone()),
        }
    }

    /// For each server by TLS that the address of a cluster names. The client of a cluster keeps only the words of why it could not
    /// connect; a connection to one of these tells.
    pub fn tls_seeds(&self, address: &Address) -> RedisResult<Vec<Client>> {
        let Address::Cluster(nodes) = address else { return Ok(Vec::new()) };
        let by_tls = nodes.iter().filter(|node| matches!(node.addr(), ConnectionAddr::TcpTls { .. }));
        by_tls.map(|node| self.client(node)).collect()
    }

    fn cluster(&self, nodes: &[ConnectionInfo]) -> RedisResult<ClusterClient> {
        let builder = ClusterClient::builder(nodes.to_vec())
            .retries(CLUSTER_RETRIES)
            .max_retry_wait(CLUSTER_WAIT_MS_MAX)
            .connection_timeout(self.connect_within)
            .response_timeout(self.answer_within)
            .overall_response_timeout(self.redirect_within);
        match self.certificates() {
            Some(certificates) => builder.certs(certificates).build(),
            None => builder.build(),
        }
    }
}

/// What makes connections to one address.
#[non_exhaustive]
pub enum Clients {
    /// To one server.
    Single(Box<Client>),
    /// To a cluster.
    Cluster(Box<ClusterClient>),
    /// To the master that the sentinels name. Asking them changes what it keeps of them.
    Sentinel(Box<SentinelClient>),
}

impl Clients {
    /// Nothing is connected yet.
    pub fn new(address: &Address, reach: &Reach) -> RedisResult<Self> {
        Ok(match address {
            Address::Single(info) => Self::Single(Box::new(reach.client(info)?)),
            Address::Cluster(nodes) => Self::Cluster(Box::new(reach.cluster(nodes)?)),
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
                if let Some(certificates) = reach.certificates() {
                    builder = builder.set_client_to_redis_certificates(certificates.clone());
                    builder = builder.set_client_to_sentinel_certificates(certificates);
                }
                Self::Sentinel(Box::new(builder.build()?))
            }
        })
    }
}
