//! How many files and connections this process may have open, and how large its files may be.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How large a file of this process may be, if there is a limit.
pub(crate) fn size_max() -> Option<u64> {
    getrlimit(Resource::Fsize).current
}

/// Raises the limit to `wanted`, as far as the system lets us. Gives what it is then; `None`: without limit.
pub(crate) fn raise(wanted: u64) -> Option<u64> {
    let now = getrlimit(Resource::Nofile);
    let current = now.current?;
    let reachable = now.maximum.map_or(wanted, |maximum| wanted.min(maximum));
    if current >= reachable {
        return Some(current);
    }
    let raised = Rlimit { current: Some(reachable), maximum: now.maximum };
    Some(setrlimit(Resource::Nofile, raised).map_or(current, |()| reachable))
}
