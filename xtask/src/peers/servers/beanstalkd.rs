use std::{io, path::PathBuf, process::Command};

use super::{Place, Server, answers, path_of};

/// With its binlog, which is synced at most this often; 0 is at every write.
pub(in crate::peers) struct Beanstalkd {
    pub(in crate::peers) fsync_ms: u32,
}

impl Server for Beanstalkd {
    fn programs(&self) -> &'static [(&'static str, &'static str)] {
        &[("beanstalkd", "apt-get install beanstalkd")]
    }

    fn program(&self, _place: &Place) -> io::Result<PathBuf> {
        path_of("beanstalkd")
    }

    fn configure(&self, place: &Place, command: &mut Command) -> io::Result<()> {
        command.args(["-l", "127.0.0.1", "-p", &place.port.to_string(), "-b"]).arg(&place.folder);
        command.args(["-f", &self.fsync_ms.to_string()]);
        Ok(())
    }

    fn is_ready(&self, place: &Place) -> bool {
        answers(place.port, b"stats\r\n", b"OK")
    }
}
