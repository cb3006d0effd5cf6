//! A port and a folder that are one server's alone, also beside other test processes and over restarts.

use std::{
    env,
    fs::{self, File},
    hash::{BuildHasher, RandomState},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    sync::Once,
};

use super::postgres;

/// Below the ports that systems give to outgoing connections, so that no client sits on the port of a server that restarts.
/// Port + 10,000 is there too, for servers that need a second one.
const PORTS: std::ops::Range<u16> = 11_000..21_000;
/// From a server's port to its second one.
pub(super) const SECOND: u16 = 10_000;

/// One server's place, until dropped. The folder goes with it.
#[derive(Debug)]
pub(super) struct PortLease {
    port: u16,
    folder: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
}

impl PortLease {
    /// A place that nobody has.
    pub(super) fn new() -> Self {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(sweep);
        let random = RandomState::new();
        let span = u64::from(PORTS.end - PORTS.start);
        let mut ports = (0..10_000_u64).map(|n| PORTS.start + (random.hash_one(n) % span) as u16);
        ports.find_map(Self::take).expect("a free port on the loopback")
    }

    fn take(port: u16) -> Option<Self> {
        let lock = locked(port)?;
        let is_free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if !is_free(port) || !is_free(port + SECOND) {
            return None;
        }
        let folder = folder(port);
        // What a killed process left is of no use to anybody.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Some(Self { port, folder, _lock: lock })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for PortLease {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Where all places are.
pub(super) fn root() -> PathBuf {
    env::temp_dir().join("duly-testkit")
}

fn folder(port: u16) -> PathBuf {
    root().join(port.to_string())
}

fn locked(port: u16) -> Option<File> {
    fs::create_dir_all(root()).unwrap();
    let file = File::create(root().join(format!("{port}.lock"))).ok()?;
    file.try_lock().ok().map(|()| file)
}

/// Removes the folders of processes that died before they could.
pub(super) fn sweep() {
    let entries = fs::read_dir(root()).into_iter().flatten().flatten();
    for port in entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        if let Some(_lock) = locked(port) {
            postgres::clean_up(&folder(port));
            let _ = fs::remove_dir_all(folder(port));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_servers_alone_and_leaves_nothing_behind() {
        let one = PortLease::new();
        assert!(locked(one.port()).is_none());
        fs::write(one.folder().join("file"), "x").unwrap();
        let (port, folder) = (one.port(), one.folder().to_owned());
        drop(one);
        assert!(!folder.exists());
        assert!(locked(port).is_some());
    }

    #[test]
    fn what_a_killed_process_left_is_swept() {
        let port_lease = PortLease::new();
        let left = folder(port_lease.port() - PORTS.start + 1);
        fs::create_dir_all(&left).unwrap();
        sweep();
        assert!(!left.exists(), "nobody holds its lock");
        assert!(port_lease.folder().exists(), "we hold the lock of this one");
    }
}
