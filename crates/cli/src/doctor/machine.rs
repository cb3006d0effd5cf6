//! The machine: its clock, its limits, and the address to listen on.

use std::{io::ErrorKind, net::TcpListener, path::Path, time::UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};

use super::{super::clock, Finding};
use duly_server::config::Config;

/// A plausible clock: after the release of this program (2025) and before 2100.
const SANE_MS: std::ops::Range<u64> = 1_735_689_600_000..4_102_444_800_000;
/// Files of the store, the terminal, the timers.
const FILES_BESIDES_CONNECTIONS: u64 = 1_024;

/// Checks that the clock is plausible and not behind the newest file of the data folder.
pub(super) fn clock(data: Option<&Path>) -> Vec<Finding> {
    let now = clock::now_ms();
    let remedy = "set the clock and keep it set (NTP): due times follow it";
    if !SANE_MS.contains(&now) {
        return vec![Finding::fail("clock", format!("it says {} ms since 1970", now), remedy)];
    }
    let newest = data.and_then(newest_ms).filter(|newest| *newest > now + 60_000);
    vec![match newest {
        Some(newest) => {
            let ahead = clock::span(newest - now);
            let detail = format!("the data folder was written {ahead} in the future: the clock went back");
            Finding::warn("clock", detail, remedy)
        }
        None => Finding::ok("clock", "it is not behind the data folder"),
    }]
}

fn newest_ms(data: &Path) -> Option<u64> {
    let times = data.read_dir().ok()?.flatten().filter_map(|entry| {
        let written = entry.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(written.as_millis()).ok()
    });
    times.max()
}

/// Whether as many connections as are allowed can be open.
pub(super) fn open_files(config: &Config) -> Vec<Finding> {
    let wanted = config.http.connections as u64 + FILES_BESIDES_CONNECTIONS;
    // The server raises its limit as far as it may.
    vec![match getrlimit(Resource::Nofile).maximum {
        Some(files) if files < wanted => {
            let detail =
                format!("at most {files} may be open, and limits.connections asks for about {wanted}");
            let remedy =
                format!("ulimit -Hn {wanted} (systemd: LimitNOFILE={wanted}), or fewer limits.connections");
            Finding::warn("open files", detail, remedy)
        }
        Some(files) => Finding::ok("open files", format!("{files} may be open")),
        None => Finding::ok("open files", "as many as wanted may be open"),
    }]
}

/// Whether the address can be listened on, and who may call there.
pub(super) fn listening(config: &Config, running: bool) -> Vec<Finding> {
    let listen = config.listen;
    let bound = match TcpListener::bind(listen) {
        Ok(_) => Finding::ok("listen", format!("{listen} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse && running => {
            Finding::ok("listen", format!("{listen} is taken, as it should be while the server runs"))
        }
        Err(error) => {
            let detail = format!("{listen} cannot be listened on: {error}");
            Finding::fail(
                "listen",
                detail,
                "stop what uses it, or choose another address with listen or --listen",
            )
        }
    };
    vec![bound, callers(config)]
}

fn callers(config: &Config) -> Finding {
    let (open, count) = (!config.listen.ip().to_canonical().is_loopback(), config.tokens.iter().len());
    match (open, count) {
        (true, 0) => {
            let detail =
                "other machines can reach the address and no token is asked for: anybody may do everything";
            Finding::warn("callers", detail, "make tokens with `duly token` and leave out --insecure-no-auth")
        }
        (true, _) if config.tls.is_none() => {
            let detail = "tokens and messages cross the network in the clear";
            Finding::warn(
                "callers",
                detail,
                "set tls.cert and tls.key, or listen on 127.0.0.1 behind a proxy that does TLS",
            )
        }
        (_, 0) => Finding::ok("callers", "everybody on this machine, without a token"),
        (_, 1) => Finding::ok("callers", "one token is configured"),
        (_, count) => Finding::ok("callers", format!("{count} tokens are configured")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;
    use duly_server::auth::{Role, Token, Tokens};

    #[test]
    fn an_address_in_use_fails_unless_the_server_itself_runs() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = Config { listen: taken.local_addr().unwrap(), ..Config::default() };
        assert_eq!(listening(&config, false)[0].state, Severity::Fail);
        assert_eq!(listening(&config, true)[0].state, Severity::Ok);
        drop(taken);
        assert_eq!(listening(&config, false)[0].state, Severity::Ok);
    }

    #[test]
    fn an_open_address_without_token_or_tls_is_told() {
        let open = |tokens| Config { listen: "0.0.0.0:1".parse().unwrap(), tokens, ..Config::default() };
        let one = Tokens::new(vec![Token::new("a", "b", &[Role::Read], &[])]);
        assert!(callers(&open(Tokens::default())).detail.contains("anybody"));
        assert!(callers(&open(one)).detail.contains("in the clear"));
        assert_eq!(callers(&Config::default()).state, Severity::Ok);
    }

    #[test]
    fn a_folder_from_the_future_is_told() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(clock(Some(folder.path()))[0].state, Severity::Ok);
        let file = std::fs::File::create(folder.path().join("journal")).unwrap();
        file.set_modified(UNIX_EPOCH + std::time::Duration::from_secs(4_000_000_000)).unwrap();
        assert_eq!(clock(Some(folder.path()))[0].state, Severity::Warn);
    }

    #[test]
    fn fewer_files_than_connections_are_told() {
        let mut config = Config::default();
        config.http.connections =
            usize::try_from(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX / 2)).unwrap();
        assert_eq!(open_files(&config)[0].state, Severity::Warn);
        config.http.connections = 1;
        assert_eq!(open_files(&config)[0].check, "open files");
    }
}
