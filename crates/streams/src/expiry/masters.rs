//! The servers that publish expiry events: each master publishes those of its own keys.

use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind, FromRedisValue, RedisResult, Value,
    cluster_routing::{RoutingInfo, SingleNodeRoutingInfo},
};
use redis_link::{Address, Clients, Link, Reach};

/// Finds the current masters.
pub(super) struct Masters {
    address: Address,
    clients: Clients,
    link: Link,
}

/// One master.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) client: Client,
}

impl Masters {
    pub(super) fn new(address: &Address, link: &Link) -> RedisResult<Self> {
        let clients = Clients::new(address, &Reach::QUICK)?;
        Ok(Self { address: address.clone(), clients, link: link.clone() })
    }

    /// Whether the masters can change.
    pub(super) fn may_change(&self) -> bool {
        !matches!(self.address, Address::Single(_))
    }

    /// The current masters.
    pub(super) async fn find(&mut self) -> RedisResult<Vec<Server>> {
        let server = |client: Client| {
            let name = client.get_connection_info().addr().to_string();
            Server { name, client }
        };
        match (&mut self.clients, &self.address, &mut self.link) {
            (Clients::Single(client), ..) => Ok(vec![server(Client::clone(client))]),
            (Clients::Sentinel(client), ..) => Ok(vec![server(client.async_get_client().await?)]),
            (Clients::Cluster(_), Address::Cluster(seeds), Link::Cluster(_, cluster)) => {
                let mut slots = redis::cmd("CLUSTER");
                slots.arg("SLOTS");
                let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
                let reply = cluster.route_command(slots, anywhere).await?;
                let open = |address| Client::open(with_address(&seeds[0], address)).map(server);
                addresses(reply, &seeds[0])?.into_iter().map(open).collect()
            }
            _ => Err((ErrorKind::InvalidClientConfig, "a cluster of an address that names none").into()),
        }
    }
}

/// The addresses of the masters, each once. A master without a name has the address of the seed.
fn addresses(reply: Value, seed: &ConnectionInfo) -> RedisResult<Vec<(String, u16)>> {
    // Per range: first slot, last slot, then its servers, the master first.
    let ranges: Vec<Vec<Value>> = FromRedisValue::from_redis_value(reply)?;
    let mut all = Vec::new();
    for range in ranges {
        let Some(Value::Array(server)) = range.into_iter().nth(2) else { continue };
        let mut server = server.into_iter();
        let (Some(host), Some(port)) = (server.next(), server.next()) else { continue };
        let host = Option::<String>::from_redis_value(host)?.filter(|host| !host.is_empty() && host != "?");
        let host = host.unwrap_or_else(|| match seed.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
            _ => "localhost".into(),
        });
        all.push((host, u16::from_redis_value(port)?));
    }
    all.sort();
    all.dedup();
    Ok(all)
}

/// The connection settings of `seed` for another server.
fn with_address(seed: &ConnectionInfo, (host, port): (String, u16)) -> ConnectionInfo {
    let address = match seed.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    seed.clone().set_addr(address)
}
