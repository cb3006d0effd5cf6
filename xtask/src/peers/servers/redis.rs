use std::{io, path::PathBuf, process::Command};

use super::{Place, Server, answers, path_of};

/// With its append-only file, synced every second: its own default, and that of most who run it.
pub(in crate::peers) struct Redis;

impl Server for Redis {
    fn programs(&self) -> &'static [(&'static str, &'static str)] {
        &[("redis-server", "apt-get install redis-server")]
    }

    fn program(&self, _place: &Place) -> io::Result<PathBuf> {
        path_of("redis-server")
    }

    fn configure(&self, place: &Place, command: &mut Command) -> io::Result<()> {
        command.args(["--port", &place.port.to_string(), "--bind", "127.0.0.1", "--dir"]).arg(&place.folder);
        command.args(["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]);
        Ok(())
    }

    fn is_ready(&self, place: &Place) -> bool {
        answers(place.port, b"PING\r\n", b"+PONG")
    }
}
