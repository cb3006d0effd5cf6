//! Where Duly may listen, and under which name it may be called.

use std::net::{IpAddr, SocketAddr};

use super::Tokens;

/// Whether Duly may listen here: on loopback always, elsewhere only with tokens, or if told so in as many words.
pub fn listen_allowed(listen: SocketAddr, tokens: &Tokens, insecure_no_auth: bool) -> Result<(), String> {
    if is_loopback(listen.ip()) || !tokens.is_empty() || insecure_no_auth {
        return Ok(());
    }
    Err(format!(
        "{listen} can be reached from other machines, and no token is configured, so anybody could send and read \
         messages; make one with `duly token --name NAME --role admin` and put its lines into duly.toml, or listen on \
         127.0.0.1:{port}, or accept the risk with --insecure-no-auth",
        port = listen.port()
    ))
}

/// Whether a request may name this host.
///
/// On loopback nobody is asked for a token, and a page in a browser on this machine can make its own name lead here (DNS
/// rebinding). Such a request names that page's host, so only names of this machine are taken. Elsewhere tokens
/// guard the way, and any name will do.
pub fn host_allowed(host: Option<&str>, listen: SocketAddr) -> bool {
    if !is_loopback(listen.ip()) {
        return true;
    }
    let Some(name) = host.and_then(without_port) else { return false };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let address = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .map_or_else(|| name.parse().map(IpAddr::V4).ok(), |inner| inner.parse().map(IpAddr::V6).ok());
    // An address cannot be made to lead elsewhere, only a name can.
    address.is_some_and(is_loopback)
}

/// Whether only this machine reaches the address.
pub fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

fn without_port(host: &str) -> Option<&str> {
    let end_of_name =
        if host.starts_with('[') { host.find(']')? + 1 } else { host.find(':').unwrap_or(host.len()) };
    let (name, rest) = host.split_at(end_of_name);
    let fits = rest.is_empty()
        || rest.strip_prefix(':').is_some_and(|port| {
            port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok()
        });
    fits.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{Role, Token};

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn beyond_loopback_a_token_is_needed() {
        let (none, some) = (Tokens::default(), Tokens::new(vec![Token::new("a", "b", &[Role::Admin], &[])]));
        for here in ["127.0.0.1:7380", "127.9.9.9:1", "[::1]:7380", "[::ffff:127.0.0.1]:1"] {
            assert_eq!(listen_allowed(addr(here), &none, false), Ok(()), "{here}");
        }
        for open in ["0.0.0.0:7380", "[::]:7380", "192.168.1.4:7380", "[::ffff:10.0.0.1]:1"] {
            let words = listen_allowed(addr(open), &none, false).unwrap_err();
            for way_out in ["duly token", "127.0.0.1:", "--insecure-no-auth"] {
                assert!(words.contains(way_out), "{words}");
            }
            assert_eq!(listen_allowed(addr(open), &some, false), Ok(()));
            assert_eq!(listen_allowed(addr(open), &none, true), Ok(()));
        }
    }

    #[test]
    fn on_loopback_only_names_of_this_machine_are_taken() {
        let here = addr("127.0.0.1:7380");
        for host in
            ["localhost", "localhost:7380", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:9", "[::1]", "[::1]:7380"]
        {
            assert!(host_allowed(Some(host), here), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:7380",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost:port",
            "localhost:99999",
            "[::1]evil",
            "[::1",
            "::1",
            "10.0.0.1",
            "0.0.0.0:7380",
            "localhost@evil.example",
        ] {
            assert!(!host_allowed(Some(host), here), "{host}");
        }
        assert!(!host_allowed(None, here), "a browser always names the host");
        assert!(host_allowed(Some("duly.example"), addr("0.0.0.0:7380")));
    }
}
