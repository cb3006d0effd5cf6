//! `cargo xtask api`: what each library offers, a text file per crate, so that a change of it is seen in review.
//!
//! Read from the pages that rustdoc writes: its JSON is not stable. The crates have the features of the whole workspace there.

mod page;

use std::{
    collections::BTreeSet,
    env,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::step::{Failure, Steps, root};

/// The libraries that others depend on, as rustdoc names them.
const LIBRARIES: [&str; 9] = [
    "duly",
    "duly_client",
    "duly_conformance",
    "duly_core",
    "duly_sinks",
    "duly_stores",
    "duly_streams",
    "duly_streams_macros",
    "redis_link",
];

/// Where the listings lie, from the root of the repository.
const FOLDER: &str = "docs/reference/api";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Write nothing, and fail if a listing is outdated
    #[arg(long)]
    check: bool,
}

/// Writes the listings, after `documentation` has made the pages.
pub(crate) fn run(steps: &Steps, arguments: &Arguments, documentation: &mut Command) -> Result<(), Failure> {
    steps.run("documentation", documentation)?;
    if arguments.check {
        return check(steps);
    }
    for library in LIBRARIES {
        let path = kept(library);
        fs::write(&path, listing(library)?).map_err(|source| Failure::Write { path, source })?;
    }
    Ok(())
}

/// Compares the listings with the pages that are there.
pub(crate) fn check(steps: &Steps) -> Result<(), Failure> {
    steps.check("listings of public interfaces", || {
        let mut files = Vec::new();
        for library in LIBRARIES {
            if fs::read_to_string(kept(library)).unwrap_or_default() != listing(library)? {
                files.push(format!("{FOLDER}/{library}.txt"));
            }
        }
        if files.is_empty() { Ok(()) } else { Err(Failure::Outdated { files }) }
    })
}

fn kept(library: &str) -> PathBuf {
    root().join(FOLDER).join(format!("{library}.txt"))
}

/// What the crate's modules export of others, then its items by their paths: each with its declaration, its methods and the traits that it
/// implements.
fn listing(library: &str) -> Result<String, Failure> {
    let folder = pages(library)?;
    let mut text = String::new();
    for module in modules(&folder)? {
        let mut exported = page::reexports(&read(&folder.join(&module).join("index.html"))?);
        exported.sort();
        for line in exported {
            let _ = writeln!(text, "{} {line}", path_of(library, &module).trim_end_matches(':'));
        }
    }
    let all = read(&folder.join("all.html"))?;
    let pages = page::links(&all, "<li><a ");
    let mut items: Vec<_> = pages.into_iter().filter_map(|page| Some((item(library, page)?, page))).collect();
    items.sort();
    for (path, page) in items {
        let _ = write!(text, "\n{path}\n{}", page::described(&read(&folder.join(page))?));
    }
    Ok(text)
}

/// The folder of the crate's pages, in the target folder of this program.
fn pages(library: &str) -> Result<PathBuf, Failure> {
    let program = env::current_exe().map_err(|source| Failure::Run { name: "listings".into(), source })?;
    let target = program.parent().and_then(Path::parent).unwrap_or(root());
    Ok(target.join("doc").join(library))
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|source| Failure::Read { path: path.into(), source })
}

/// The folders of the public modules, the root first.
fn modules(folder: &Path) -> Result<BTreeSet<String>, Failure> {
    let mut found = BTreeSet::from([String::new()]);
    let mut waiting = vec![String::new()];
    while let Some(module) = waiting.pop() {
        let index = read(&folder.join(&module).join("index.html"))?;
        for link in page::links(&index, "<dt><a class=\"mod\" ") {
            let inner = format!("{module}{}", link.trim_end_matches("index.html"));
            if found.insert(inner.clone()) {
                waiting.push(inner);
            }
        }
    }
    Ok(found)
}

/// `store/` of `duly_core` as `duly_core::store::`.
fn path_of(library: &str, module: &str) -> String {
    format!("{library}::{}", module.replace('/', "::"))
}

/// `store/trait.Store.html` of `duly_core` as `duly_core::store::Store`. `None` if it is no page of an item.
fn item(library: &str, page: &str) -> Option<String> {
    let (module, file) = page.split_at(page.rfind('/').map_or(0, |slash| slash + 1));
    let (_, name) = file.strip_suffix(".html")?.split_once('.')?;
    Some(format!("{}{name}", path_of(library, module)))
}
