use std::{io, path::PathBuf, process::Command};

use super::{Sandbox, Server, answers, path_of};

/// With its binlog, which is synced at most this often; 0 is at every write.
pub(in crate::peers) struct Beanstalkd {
    pub(in crate::peers) fsync_ms: u32,
}

impl Server for Beanstalkd {
    fn programs(&self) -> &'static [(&'static str, &'static str)] {
        &[("beanstalkd", "apt-get install beanstalkd")]
    }

    fn program(&self, _place: &Sandbox) -> io::Result<PathBuf> {
        path_of("beanstalkd")
    }

    fn configure(&self, sandbox: &Sandbox, command: &mut Command) -> io::Result<()> {
        command.args(["-l", "127.0.0.1", "-p", &sandbox.port.to_string(), "-b"]).arg(&sandbox.folder);
        command.args(["-f", &self.fsync_ms.to_string()]);
        Ok(())
    }

    fn is_ready(&self, sandbox: &Sandbox) -> bool {
        answers(sandbox.port, b"stats\r\n", b"OK")
    }
}
