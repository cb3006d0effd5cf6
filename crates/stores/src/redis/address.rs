//! Where Redis is.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisResult};

const SENTINEL_PORT: u16 = 26_379;

/// `redis://…`, `redis-cluster://a,b,c`, `redis-sentinel://a,b,c/name`, and the same with `rediss` for TLS.
#[derive(Debug)]
pub(super) enum Address {
    /// One server.
    Single(ConnectionInfo),
    /// Some nodes of a cluster; the others they know themselves.
    Cluster(Vec<ConnectionInfo>),
    /// Sentinels, who know which server is the master of that name.
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        name: String,
        /// User, password and database of the master, and whether it speaks TLS.
        master: ConnectionInfo,
    },
}

impl Address {
    /// Reads an address. What is wrong is told without the address, which may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let whole = |url: &str| url.into_connection_info().map_err(|error| error.to_string());
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(
                "it begins with none of redis://, rediss://, redis-cluster://, redis-sentinel://".into()
            );
        };
        let Some((plain, kind)) = scheme.split_once('-') else { return whole(url).map(Self::Single) };
        let (login, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts = hosts.split(',').map(str::trim).filter(|host| !host.is_empty());
        let login = if login.is_empty() { String::new() } else { format!("{login}@") };
        let all = |infos: RedisResult<Vec<_>>| infos.map_err(|error| error.to_string());
        match kind {
            "cluster" => {
                let infos = hosts.map(|host| format!("{plain}://{login}{host}").into_connection_info());
                some(all(infos.collect())?).map(Self::Cluster)
            }
            "sentinel" => {
                let (name, database) = path.split_once('/').unwrap_or((path, ""));
                if name.is_empty() {
                    return Err("it does not say which master: redis-sentinel://a,b,c/name".into());
                }
                let infos = hosts.map(|host| {
                    let port = if has_port(host) { String::new() } else { format!(":{SENTINEL_PORT}") };
                    format!("{plain}://{host}{port}").into_connection_info()
                });
                let master = whole(&format!("{plain}://{login}localhost/{database}"))?;
                Ok(Self::Sentinel { sentinels: some(all(infos.collect())?)?, name: name.to_owned(), master })
            }
            _ => Err(format!("{scheme} is none of redis, rediss, redis-cluster, redis-sentinel")),
        }
    }
}

fn some(infos: Vec<ConnectionInfo>) -> Result<Vec<ConnectionInfo>, String> {
    if infos.is_empty() { Err("it names no host".into()) } else { Ok(infos) }
}

fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// Whether this is an address that [`RedisStore::open`](super::RedisStore::open) understands; if not, why. The answer does not
/// hold the address, which may hold a password.
pub fn check_address(url: &str) -> Result<(), String> {
    Address::parse(url).map(|_| ())
}

/// Whether that address speaks TLS.
pub(super) fn is_tls(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(infos: &[ConnectionInfo]) -> Vec<String> {
        infos.iter().map(|info| info.addr().to_string()).collect()
    }

    #[test]
    fn every_way_to_redis_can_be_named() {
        let Ok(Address::Single(one)) = Address::parse("rediss://user:secret@example.org:7000/3") else {
            panic!()
        };
        assert!(is_tls(&one));
        assert_eq!((one.redis_settings().db(), one.redis_settings().password()), (3, Some("secret")));

        let Ok(Address::Cluster(nodes)) = Address::parse("redis-cluster://:secret@a:1,b:2, c") else {
            panic!()
        };
        assert_eq!(addresses(&nodes), ["a:1", "b:2", "c:6379"]);
        assert!(nodes.iter().all(|node| node.redis_settings().password() == Some("secret")));

        let url = "redis-sentinel://:secret@a,b:2/orders/1";
        let Ok(Address::Sentinel { sentinels, name, master }) = Address::parse(url) else { panic!() };
        assert_eq!((addresses(&sentinels), name.as_str()), (vec!["a:26379".into(), "b:2".into()], "orders"));
        assert_eq!((master.redis_settings().db(), master.redis_settings().password()), (1, Some("secret")));
        assert!(sentinels.iter().all(|sentinel| sentinel.redis_settings().password().is_none()));
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_password() {
        let bad =
            ["localhost", "http://a", "redis-ring://:pw@a", "redis-cluster://:pw@", "redis-sentinel://:pw@a"];
        for url in bad {
            let what = Address::parse(url).unwrap_err();
            assert!(!what.contains("pw"), "{what}");
        }
    }
}
