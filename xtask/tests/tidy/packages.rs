//! What a crate needs before crates.io takes it. Publishing itself is off: `publish = false` in the workspace.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde::Deserialize;

/// The crate that users of a server depend on.
const CLIENT: &str = "duly-client";
/// crates.io takes no more keywords of a crate.
const KEYWORDS_MAX: usize = 5;

#[derive(Deserialize)]
struct Workspace {
    workspace: Tables,
}

#[derive(Deserialize)]
struct Tables {
    package: Inherited,
    dependencies: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
struct Inherited {
    version: String,
}

#[derive(Deserialize)]
struct Manifest {
    package: Package,
    #[serde(default)]
    dependencies: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
struct Package {
    #[serde(default)]
    description: String,
    #[serde(default)]
    keywords: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
}

impl Package {
    fn faults(&self, name: &str) -> Vec<String> {
        let is_ok = [
            ("description", !self.description.is_empty()),
            ("keywords", (1..=KEYWORDS_MAX).contains(&self.keywords.len())),
            ("categories", !self.categories.is_empty()),
        ];
        is_ok.iter().filter(|(_, is_ok)| !is_ok).map(|(field, _)| format!("{name}: {field}")).collect()
    }
}

/// A dependency of the workspace that is one of its crates: its folder, if it also has the version by which crates.io finds it.
fn own(dependency: &toml::Value, version: &str) -> Option<Result<String, ()>> {
    let folder = dependency.get("path")?.as_str()?.to_owned();
    let is_versioned = dependency.get("version").and_then(toml::Value::as_str) == Some(version);
    Some(if is_versioned { Ok(folder) } else { Err(()) })
}

#[test]
fn the_client_and_what_it_needs_can_be_packaged() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository");
    let read = |folder: &str| fs::read_to_string(root.join(folder).join("Cargo.toml")).expect(folder);
    let Workspace { workspace } = toml::from_str(&read("")).expect("the workspace's Cargo.toml");
    let (mut names, mut seen, mut faults) = (vec![CLIENT.to_owned()], BTreeSet::new(), Vec::new());
    while let Some(name) = names.pop() {
        match own(&workspace.dependencies[&name], &workspace.package.version) {
            Some(Ok(folder)) if seen.insert(name.clone()) => {
                let manifest: Manifest = toml::from_str(&read(&folder)).expect(&folder);
                faults.extend(manifest.package.faults(&name));
                names.extend(manifest.dependencies.into_keys());
            }
            Some(Err(())) => faults.push(format!("{name}: version beside its path")),
            _ => {}
        }
    }
    assert!(faults.is_empty(), "missing: {faults:?}");
    assert!(seen.len() > 1, "the client needs duly-core: {seen:?}");
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
