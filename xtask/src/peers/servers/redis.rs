use std::{io, path::PathBuf, process::Command};

use super::{Sandbox, Server, answers, path_of};

/// With its append-only file, synced every second: its own default, and that of most who run it.
pub(in crate::peers) struct Redis;

impl Server for Redis {
    fn programs(&self) -> &'static [(&'static str, &'static str)] {
        &[("redis-server", "apt-get install redis-server")]
    }

    fn program(&self, _place: &Sandbox) -> io::Result<PathBuf> {
        path_of("redis-server")
    }

    fn configure(&self, sandbox: &Sandbox, command: &mut Command) -> io::Result<()> {
        command
            .args(["--port", &sandbox.port.to_string(), "--bind", "127.0.0.1", "--dir"])
            .arg(&sandbox.folder);
        command.args(["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]);
        Ok(())
    }

    fn is_ready(&self, sandbox: &Sandbox) -> bool {
        answers(sandbox.port, b"PING\r\n", b"+PONG")
    }
}
