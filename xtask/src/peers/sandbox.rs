//! Where one server runs: ports of the loopback and a folder, which goes with it.

use std::{
    env, fs, io,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU16, AtomicU32, Ordering},
};

use super::process_tree;

/// Below the ports that systems give to outgoing connections, so that no client sits on the port of a server that restarts.
const PORTS: std::ops::Range<u16> = 31_000..32_700;

/// The folders' names begin so; the number of our process and their own follow.
const PREFIX: &str = "duly-peers-";

/// Ports and a folder that stay over restarts.
pub(super) struct Sandbox {
    pub(super) port: u16,
    /// For servers that need another one.
    pub(super) second_port: u16,
    /// The port of the server that was started before this one; 0 for the first.
    pub(super) behind: u16,
    pub(super) folder: PathBuf,
    /// The binary of Duly.
    pub(super) duly: PathBuf,
}

impl Sandbox {
    pub(super) fn new(behind: u16, duly: &Path) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("{PREFIX}{}-{number}", process::id()));
        fs::create_dir(&folder)?;
        Ok(Self { port: free_port()?, second_port: free_port()?, behind, folder, duly: duly.to_owned() })
    }

    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("log")
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // What is left costs room, and no figure.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Removes the folders of runs that were killed.
pub(super) fn sweep() {
    for entry in fs::read_dir(env::temp_dir()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok());
        if owner.is_some_and(|owner| !process_tree::is_alive(owner)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A port that nobody listens on, and no sandbox before had.
fn free_port() -> io::Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = PORTS.end - PORTS.start;
    let first = (process::id() % u32::from(span)) as u16;
    let free = (0..span).find_map(|_| {
        let port = PORTS.start + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % span;
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok().map(|_| port)
    });
    free.ok_or_else(|| io::Error::new(io::ErrorKind::AddrInUse, "no free port on the loopback"))
}
