//! What a crate needs before crates.io takes it. `cargo xtask test` makes the packages; this says what cargo does not ask for.

use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
};

use serde::Deserialize;

use crate::sources::{Source, sources};

/// What crates.io takes of a crate.
const KEYWORDS_MAX: usize = 5;
const KEYWORD_LENGTH_MAX: usize = 20;
/// Of a crate, beside its sources.
const FILES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];
/// Whoever uses Duly finds these on crates.io.
const PUBLISHED_MIN: usize = 10;

#[derive(Deserialize)]
struct Workspace {
    workspace: Tables,
}

#[derive(Deserialize)]
struct Tables {
    members: Vec<String>,
    package: Inherited,
    dependencies: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Inherited {
    version: String,
    rust_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Manifest {
    package: Package,
    #[serde(default)]
    dependencies: BTreeMap<String, toml::Value>,
    #[serde(default)]
    dev_dependencies: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    #[serde(default = "yes")]
    publish: bool,
    #[serde(default)]
    description: String,
    #[serde(default)]
    keywords: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    readme: String,
}

fn yes() -> bool {
    true
}

impl Package {
    fn faults(&self, folder: &Path) -> Vec<String> {
        let is_short = |keyword: &String| keyword.len() <= KEYWORD_LENGTH_MAX;
        let has_keywords = (1..=KEYWORDS_MAX).contains(&self.keywords.len());
        let is_ok = [
            ("description", !self.description.is_empty()),
            ("keywords", has_keywords && self.keywords.iter().all(is_short)),
            ("categories", !self.categories.is_empty()),
            ("readme = \"README.md\"", self.readme == "README.md"),
        ];
        let fields = is_ok.iter().filter(|(_, is_ok)| !is_ok).map(|(field, _)| (*field).to_owned());
        let files = FILES.iter().filter(|file| !folder.join(file).is_file()).map(|file| (*file).to_owned());
        fields.chain(files).map(|missing| format!("{}: {missing}", self.name)).collect()
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn workspace() -> Tables {
    let Workspace { workspace } =
        toml::from_str(&read(&root().join("Cargo.toml"))).expect("the workspace's Cargo.toml");
    workspace
}

/// The folders of the crates that are published, from the root, with their manifests.
fn published() -> Vec<(PathBuf, Manifest)> {
    let members = workspace().members.into_iter().map(PathBuf::from);
    let manifests = members.map(|folder| {
        let manifest = toml::from_str(&read(&root().join(&folder).join("Cargo.toml"))).expect("a manifest");
        (folder, manifest)
    });
    let published: Vec<_> =
        manifests.filter(|(_, manifest): &(_, Manifest)| manifest.package.publish).collect();
    assert!(published.len() >= PUBLISHED_MIN, "{} crates are published", published.len());
    published
}

/// Whether a dependency says its version, by which crates.io finds it, itself or in the workspace. `None` if it is no crate of ours.
fn is_versioned(name: &str, dependency: &toml::Value, workspace: &Tables) -> Option<bool> {
    let is_inherited = dependency.get("workspace").is_some();
    let dependency = if is_inherited { workspace.dependencies.get(name)? } else { dependency };
    dependency.get("path")?;
    Some(dependency.get("version").and_then(toml::Value::as_str) == Some(&workspace.package.version))
}

#[test]
fn every_published_crate_says_what_crates_io_asks_for() {
    let workspace = workspace();
    let mut faults = Vec::new();
    for (folder, manifest) in published() {
        let name = &manifest.package.name;
        faults.extend(manifest.package.faults(&root().join(&folder)));
        for (own, dependency) in &manifest.dependencies {
            if is_versioned(own, dependency, &workspace) == Some(false) {
                faults.push(format!("{name}: the version of {own} beside its path"));
            }
        }
        // With a version it would have to be on crates.io before, and crates that test each other never could be.
        for (own, dependency) in &manifest.dev_dependencies {
            if is_versioned(own, dependency, &workspace) == Some(true) {
                faults.push(format!("{name}: {own} by its path alone, as it is for tests"));
            }
        }
    }
    assert!(faults.is_empty(), "missing: {faults:#?}");
}

/// `path` without `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = resolved.pop(),
            part => resolved.push(part),
        }
    }
    resolved
}

/// The files outside of `folder` that the sources of a published crate include, other than in tests.
fn includes_from_outside(folder: &Path, sources: &[Source]) -> Vec<String> {
    let is_source = |source: &&Source| source.is_rust() && source.path.starts_with(folder.join("src"));
    let mut found = Vec::new();
    for source in sources.iter().filter(is_source).filter(|source| !is_for_tests(source, sources)) {
        let code = source.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for rest in ["include_str!(\"", "include_bytes!(\""].iter().flat_map(|word| code.split(word).skip(1))
        {
            let file = rest.split('"').next().unwrap_or_default();
            let included = resolved(&source.path.parent().unwrap_or(folder).join(file));
            if !included.starts_with(folder) {
                found.push(format!("{}: {}", source.path.display(), included.display()));
            }
        }
    }
    found
}

/// Whether a file is a module of tests, by its place or by how the file above declares it.
fn is_for_tests(source: &Source, sources: &[Source]) -> bool {
    let is_tests = |part: &Path| part.ends_with("tests") || part.ends_with("tests.rs");
    let module = source.path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let declared = format!("#[cfg(test)]\nmod {module};\n");
    let is_beside = |other: &&Source| other.path.parent() == source.path.parent();
    source.path.ancestors().any(is_tests)
        || sources.iter().filter(is_beside).any(|other| other.text.contains(&declared))
}

#[test]
fn a_published_crate_includes_its_own_files_alone() {
    let sources = sources();
    let found: Vec<_> =
        published().iter().flat_map(|(folder, _)| includes_from_outside(folder, &sources)).collect();
    crate::assert_none(&found);

    let source = |path: &str, text: &str| Source::new(path, text.into());
    let page = "const PAGE: &str = include_str!(\"../../../docs/page.md\");\n";
    let of = |sources: &[Source]| includes_from_outside(Path::new("crates/a"), sources).len();
    assert_eq!(of(&[source("crates/a/src/b.rs", page)]), 1);
    assert_eq!(of(&[source("crates/a/src/b.rs", &page.replace("../../../", "../"))]), 0, "of its own");
    assert_eq!(of(&[source("crates/a/src/tests.rs", page)]), 0);
    let declared = source("crates/a/src/lib.rs", "#[cfg(test)]\nmod b;\n");
    assert_eq!(of(&[source("crates/a/src/b.rs", page), declared]), 0);
}

#[test]
fn the_oldest_rust_is_the_same_everywhere() {
    let rust = workspace().package.rust_version;
    let said = format!("Rust {rust} or newer.");
    let readmes = published().into_iter().map(|(folder, _)| folder.join("README.md"));
    let silent: Vec<_> = readmes.filter(|readme| !read(&root().join(readme)).contains(&said)).collect();
    assert!(silent.is_empty(), "{said:?} is not in {silent:?}");
    // The tests compile with the pinned tool chain and no other: a promise of an older Rust would be untested.
    let pinned = read(&root().join("rust-toolchain.toml"));
    assert!(
        pinned.contains(&format!("channel = \"{rust}.")),
        "{rust} is not the pinned tool chain: {pinned}"
    );
}

/// What the benchmark of peers installs is the same everywhere, from whichever registry a machine uses.
#[test]
fn the_drivers_of_peers_are_pinned_and_name_no_registry() {
    let drivers = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lies in the repository")
        .join("bench/peers");
    let read = |file: &str| fs::read_to_string(drivers.join(file)).expect(file);
    let json = |file: &str| serde_json::from_str::<serde_json::Value>(&read(file)).expect(file);
    let (wanted, lock) = (json("node/package.json"), json("node/package-lock.json"));
    let wanted = wanted["dependencies"].as_object().expect("dependencies");
    let ranges: Vec<_> = wanted.iter().filter(|(_, version)| !is_exact(version.as_str())).collect();
    assert!(ranges.is_empty(), "give them one version: {ranges:?}");
    let packages =
        lock["packages"].as_object().expect("packages").iter().filter(|(name, _)| !name.is_empty());
    let faulty: Vec<_> = packages
        .filter(|(_, package)| package["integrity"].is_null() || !package["resolved"].is_null())
        .map(|(name, _)| name)
        .collect();
    assert!(
        faulty.is_empty(),
        "without checksum or with an address: {faulty:?}; npm install --package-lock-only --omit-lockfile-registry-resolved"
    );
    let sums = read("go/go.sum");
    let modules = read("go/go.mod");
    let required = modules.lines().filter_map(|line| line.strip_prefix('\t')?.split(" //").next());
    let missing: Vec<_> = required.filter(|module| !sums.contains(&format!("{module} h1:"))).collect();
    assert!(missing.is_empty(), "not in go.sum: {missing:?}");
}

fn is_exact(version: Option<&str>) -> bool {
    version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}
