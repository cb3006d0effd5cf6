//! Data folders of servers without data: making one takes seconds, so it is made once and copied for each server.

use std::{
    fs::{self, File},
    path::Path,
    process::Command,
    time::Duration,
};

use super::port_lease;

/// Systems clean their temporary folder by age and file by file; half a data folder would be worse than none.
const FRESH: Duration = Duration::from_hours(24);

/// Copies the empty data folder of that name to `to`, which is not there yet. The first who asks also makes it, with
/// `make`, which finds a folder without anything in it.
///
/// # Panics
/// If it cannot be made or copied.
pub(super) fn copy(name: &str, to: &Path, make: impl Fn(&Path)) {
    let root = port_lease::root();
    let original = root.join(name);
    let lock = File::create(root.join(format!("{name}.lock"))).unwrap();
    for _ in 0..10 {
        // Nobody makes a new one while somebody copies.
        lock.lock_shared().unwrap();
        if is_fresh(&original) {
            let done = Command::new("cp").arg("-a").args([&original, to]).output().unwrap();
            assert!(done.status.success(), "cannot copy {name}: {}", String::from_utf8_lossy(&done.stderr));
            return;
        }
        lock.unlock().unwrap();
        lock.lock().unwrap();
        if !is_fresh(&original) {
            let new = root.join(format!("{name}.new"));
            for left in [&new, &original] {
                let _ = fs::remove_dir_all(left);
            }
            fs::create_dir(&new).unwrap();
            make(&new);
            fs::rename(&new, &original).unwrap();
        }
        lock.unlock().unwrap();
    }
    panic!("{} is always old: is the clock right?", original.display());
}

fn is_fresh(folder: &Path) -> bool {
    let age = folder.metadata().and_then(|data| data.modified()).map(|made| made.elapsed());
    matches!(age, Ok(Ok(age)) if age < FRESH)
}

/// `version` as a part of a file's name.
pub(super) fn word(version: &[u8]) -> String {
    let version = String::from_utf8_lossy(version);
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    version.trim().chars().map(kept).take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_who_asks_makes_it_and_all_get_a_copy() {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("empty-{}", std::process::id());
        let made = std::sync::Mutex::new(0);
        std::thread::scope(|threads| {
            for copy in ["a", "b", "c"] {
                let to = folder.path().join(copy);
                let (name, made) = (&name, &made);
                threads.spawn(move || {
                    super::copy(name, &to, |new| {
                        *made.lock().unwrap() += 1;
                        fs::write(new.join("file"), "data").unwrap();
                    });
                    assert_eq!(fs::read_to_string(to.join("file")).unwrap(), "data");
                });
            }
        });
        assert_eq!(*made.lock().unwrap(), 1);
        fs::remove_dir_all(port_lease::root().join(&name)).unwrap();
        fs::remove_file(port_lease::root().join(format!("{name}.lock"))).unwrap();
    }

    #[test]
    fn a_version_becomes_a_word() {
        assert_eq!(word(b"mariadbd  Ver 10.11/x\n"), "mariadbd--Ver-10.11-x");
    }
}
