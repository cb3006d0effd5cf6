//! Where Redis is: one server, a cluster, or sentinels that know.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

/// Where a sentinel listens if nothing else is said.
const SENTINEL_PORT: u16 = 26_379;

/// A Redis, as its URL tells it. TLS is asked for by `rediss`, as in `rediss-cluster://`.
#[derive(Clone)]
#[non_exhaustive]
pub enum Address {
    /// `redis://` or `rediss://`: one server.
    Single(ConnectionInfo),
    /// `redis-cluster://a,b,c`: servers of which one is enough to find the others.
    Cluster(Vec<ConnectionInfo>),
    /// `redis-sentinel://a,b,c/name`: sentinels, and the name of the master that they watch.
    Sentinel {
        /// Where the sentinels are.
        sentinels: Vec<ConnectionAddr>,
        /// What they call the master.
        name: String,
        /// User, password and database of the master.
        redis: RedisConnectionInfo,
        /// Whether all of them speak TLS.
        is_secure: bool,
    },
}

impl Address {
    /// Reads the URL. The words of a fault do not repeat it: it may hold a password.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| unknown(text))?;
        let is_secure = scheme.starts_with("rediss");
        if rest.contains('#') {
            return Err("what follows # has no meaning here; leave it out".into());
        }
        match scheme {
            "redis" | "rediss" => Ok(Self::Single(info(text)?)),
            "redis-cluster" | "rediss-cluster" => {
                let (who, hosts, path) = parts(rest);
                if !matches!(path, "" | "0") {
                    return Err("a cluster has the database 0 only".into());
                }
                let node = |host| info(&url(is_secure, who, host, ""));
                Ok(Self::Cluster(hosts.map(node).collect::<Result<_, _>>()?))
            }
            "redis-sentinel" | "rediss-sentinel" => {
                let (who, hosts, path) = parts(rest);
                let (name, database) = path.split_once('/').unwrap_or((path, ""));
                if name.is_empty() {
                    return Err("name the master after the sentinels: redis-sentinel://a,b,c/name".into());
                }
                let redis = info(&url(is_secure, who, "localhost", database))?.redis_settings().clone();
                let sentinel = |host: &str| {
                    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
                    let host = if has_port { host.into() } else { format!("{host}:{SENTINEL_PORT}") };
                    Ok(info(&url(is_secure, "", &host, ""))?.addr().clone())
                };
                let sentinels = hosts.map(sentinel).collect::<Result<_, String>>()?;
                Ok(Self::Sentinel { sentinels, name: name.into(), redis, is_secure })
            }
            _ => Err(unknown(text)),
        }
    }

    /// Whether one script can reach what is here and there: the same server, or the same master of the same sentinels, and the
    /// same database. Never in a cluster, where a script has one slot. Other names of one server are not found out.
    pub fn is_one_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Single(one), Self::Single(other)) => {
                one.addr() == other.addr() && one.redis_settings().db() == other.redis_settings().db()
            }
            (
                Self::Sentinel { sentinels, name, redis, .. },
                Self::Sentinel { sentinels: others, name: other_name, redis: other, .. },
            ) => {
                name == other_name
                    && redis.db() == other.db()
                    && sentinels.iter().any(|sentinel| others.contains(sentinel))
            }
            _ => false,
        }
    }

    /// Whether it is reached by TLS.
    pub fn is_secure(&self) -> bool {
        let by_tls = |info: &ConnectionInfo| matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        match self {
            Self::Single(info) => by_tls(info),
            Self::Cluster(nodes) => nodes.iter().any(by_tls),
            Self::Sentinel { is_secure, .. } => *is_secure,
        }
    }
}

/// Never the password.
impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Single(info) => write!(f, "{}", info.addr()),
            Self::Cluster(nodes) => write!(f, "a cluster of {}", nodes.len()),
            Self::Sentinel { name, .. } => write!(f, "the master {name:?}"),
        }
    }
}

fn unknown(_: &str) -> String {
    "it begins with redis://, rediss://, redis-cluster:// or redis-sentinel://".into()
}

/// Who connects, where to, and what follows.
fn parts(rest: &str) -> (&str, impl Iterator<Item = &str>, &str) {
    let (who, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    (who, hosts.split(',').map(str::trim), path)
}

fn url(is_secure: bool, who: &str, host: &str, database: &str) -> String {
    let scheme = if is_secure { "rediss" } else { "redis" };
    let at = if who.is_empty() { "" } else { "@" };
    format!("{scheme}://{who}{at}{host}/{database}")
}

fn info(url: &str) -> Result<ConnectionInfo, String> {
    let has_host = url::Url::parse(url).is_ok_and(|url| url.host_str().is_some_and(|host| !host.is_empty()));
    if !has_host {
        return Err("a server is missing or is no name: write host or host:port".into());
    }
    url.into_connection_info().map_err(|why| format!("not the address of a Redis: {}", why.category()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(url: &str) -> Vec<String> {
        match Address::parse(url).unwrap() {
            Address::Single(info) => vec![info.addr().to_string()],
            Address::Cluster(nodes) => nodes.iter().map(|node| node.addr().to_string()).collect(),
            Address::Sentinel { sentinels, .. } => sentinels.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn every_kind_of_redis_has_its_form() {
        assert_eq!(addresses("redis://cache"), ["cache:6379"]);
        assert_eq!(addresses("rediss://cache:7000/2"), ["cache:7000"]);
        assert_eq!(addresses("redis-cluster://a,b:7001, [::1]:7002"), ["a:6379", "b:7001", "::1:7002"]);
        assert_eq!(addresses("redis-sentinel://a,b:7001/mymaster"), ["a:26379", "b:7001"]);
        assert!(Address::parse("rediss-cluster://a").unwrap().is_secure());
        assert!(!Address::parse("redis-sentinel://a/name").unwrap().is_secure());
    }

    #[test]
    fn credentials_are_for_the_servers_and_never_shown() {
        let Address::Cluster(nodes) = Address::parse("redis-cluster://me:p%40ss@a,b").unwrap() else {
            panic!()
        };
        for node in &nodes {
            assert_eq!(node.redis_settings().username(), Some("me"));
            assert_eq!(node.redis_settings().password(), Some("p@ss"));
        }
        let sentinel = Address::parse("redis-sentinel://:secret@a/name/3").unwrap();
        assert!(!format!("{sentinel:?}").contains("secret"));
        let Address::Sentinel { redis, name, .. } = sentinel else { panic!() };
        assert_eq!((redis.password(), redis.db(), name.as_str()), (Some("secret"), 3, "name"));
    }

    #[test]
    fn one_script_reaches_two_addresses_only_on_one_server() {
        let is_one = |one, other| Address::parse(one).unwrap().is_one_with(&Address::parse(other).unwrap());
        assert!(is_one("redis://a", "redis://user:secret@a:6379/0"));
        assert!(is_one("redis-sentinel://a,b/orders/1", "redis-sentinel://b,c/orders/1"));
        for (one, other) in [
            ("redis://a", "redis://b"),
            ("redis://a", "redis://a/1"),
            ("redis://a", "redis://a:6380"),
            ("redis-cluster://a", "redis-cluster://a"),
            ("redis://a", "redis-cluster://a"),
            ("redis-sentinel://a/orders", "redis-sentinel://a/mail"),
            ("redis-sentinel://a/orders", "redis-sentinel://b/orders"),
            ("redis-sentinel://a/orders", "redis-sentinel://a/orders/1"),
        ] {
            assert!(!is_one(one, other), "{one} and {other}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_repeating_it() {
        for url in [
            "secret",
            "http://secret",
            "redis://",
            "redis-cluster://secret,/",
            "redis-cluster://a/2secret",
            "redis-sentinel://:secret@a,b",
            "redis://:secret@host:99999",
            "rediss://secret#insecure",
        ] {
            let fault = Address::parse(url).unwrap_err();
            assert!(!fault.contains("secret"), "{url}: {fault}");
        }
    }
}
