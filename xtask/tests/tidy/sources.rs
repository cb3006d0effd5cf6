//! Every text file of the repository that people write.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

/// One file: its path from the root of the repository, and what stands in it.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn new(path: impl Into<PathBuf>, text: String) -> Self {
        Self { path: path.into(), text }
    }

    pub(crate) fn name(&self) -> &str {
        self.path.file_name().and_then(OsStr::to_str).unwrap_or_default()
    }

    /// How its name ends, without the dot.
    pub(crate) fn extension(&self) -> &str {
        self.path.extension().and_then(OsStr::to_str).unwrap_or_default()
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.extension() == Some(OsStr::new("rs"))
    }
}

/// All of them, in order.
pub(crate) fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository");
    let mut found = Vec::new();
    for folder in ["bench", "crates", "xtask", "docs", ".ci", ".cargo"] {
        walk(root, &root.join(folder), &mut found);
    }
    for path in listed(root) {
        take(root, &path, &mut found);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.iter().any(Source::is_rust), "no Rust file below {}", root.display());
    // A folder of sources whose name only begins like that of a build's output.
    let is_read = found.iter().any(|source| source.path.starts_with("crates/sinks/tests/targets"));
    assert!(is_read, "crates/sinks/tests/targets is left out");
    found
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    for path in listed(folder) {
        let is_built = path.file_name().is_some_and(|name| {
            let name = name.to_string_lossy();
            name == "target" || name.starts_with("target-")
        });
        if path.is_dir() && !is_built {
            walk(root, &path, found);
        } else {
            take(root, &path, found);
        }
    }
}

/// A file or folder may go while others work; what is gone needs no tidying.
fn listed(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Keeps `path` if it is a text file that people write.
fn take(root: &Path, path: &Path, found: &mut Vec<Source>) {
    let kind = path.extension().and_then(OsStr::to_str);
    let is_text = matches!(
        kind,
        Some("rs" | "lua" | "js" | "mjs" | "go" | "sql" | "toml" | "md" | "yml" | "yaml" | "sh")
    ) || path.ends_with(".ci/run");
    // What a link leads to is read where it lies.
    if !is_text || !path.is_file() || path.is_symlink() {
        return;
    }
    if let (Ok(text), Ok(path)) = (fs::read_to_string(path), path.strip_prefix(root)) {
        found.push(Source::new(path, text));
    }
}
