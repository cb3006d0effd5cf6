//! The user that a server runs as which refuses to run as root.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::Path,
    process::Command,
};

use super::port_lease;

/// A user of this machine without rights.
#[derive(Debug, Clone, Copy)]
pub(super) struct User {
    id: u32,
    group: u32,
}

impl User {
    /// The first of `names` that is known here, if we are root; otherwise servers run as whoever we are.
    ///
    /// # Panics
    /// If we are root and none of them is known.
    pub(super) fn instead_of_root(names: &[&str]) -> Option<Self> {
        rustix::process::geteuid().is_root().then(|| {
            let all = fs::read_to_string("/etc/passwd").unwrap();
            let known = names.iter().find_map(|name| all.lines().find_map(|line| Self::read(line, name)));
            known.unwrap_or_else(|| panic!("none of these is a user here: {}", names.join(", ")))
        })
    }

    fn read(line: &str, name: &str) -> Option<Self> {
        let mut fields = line.strip_prefix(name)?.strip_prefix(':')?.split(':').skip(1);
        Some(Self { id: fields.next()?.parse().ok()?, group: fields.next()?.parse().ok()? })
    }

    /// The command will run as this user, and in none of our groups.
    pub(super) fn run(self, command: &mut Command) {
        command.uid(self.id).gid(self.group);
    }

    /// Gives the user a folder, and the way to it.
    pub(super) fn own(self, folder: &Path) {
        let allow =
            |folder: &Path, mode| fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        allow(&port_lease::root(), 0o755);
        chown(folder, Some(self.id), Some(self.group)).unwrap();
        allow(folder, 0o700);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_read_from_its_own_line() {
        let line = "postgres:x:101:104:PostgreSQL,,,:/var/lib/postgresql:/bin/bash";
        let user = User::read(line, "postgres").unwrap();
        assert_eq!((user.id, user.group), (101, 104));
        assert!(User::read(line, "post").is_none());
    }
}
