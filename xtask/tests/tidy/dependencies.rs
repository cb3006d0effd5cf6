//! Licences, bans and sources of all dependencies by `deny.toml`, as cargo-deny checks them: ADR 0044.

use std::{fs, path::Path, process::Command};

use serde::Deserialize;
use spdx::{Expression, Licensee, ParseMode};

/// The registry that every dependency comes from.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// What this test reads of `deny.toml`. A key that it does not know fails it, so that no rule is there for cargo-deny alone. Advisories and
/// the choice of the graph are left to cargo-deny.
#[derive(Deserialize)]
struct Policy {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Licenses {
    allow: Vec<String>,
    #[serde(rename = "unused-allowed-license")]
    _unused_allowed_license: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Bans {
    /// Only a warning: left to cargo-deny.
    #[serde(rename = "multiple-versions")]
    _multiple_versions: Warn,
    wildcards: Deny,
    allow_wildcard_paths: bool,
    deny: Vec<Ban>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    /// Crates that may depend on it all the same.
    #[serde(default)]
    wrappers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Sources {
    unknown_registry: Deny,
    unknown_git: Deny,
}

/// The one value of a setting that this test implements.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Deny {
    Deny,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Warn {
    Warn,
}

/// What `cargo metadata` prints.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// None of a crate of the workspace.
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    req: String,
    path: Option<String>,
}

/// One line for each rule that a package breaks.
fn complaints(policy: &Policy, packages: &[Package]) -> Vec<String> {
    let allowed: Vec<Licensee> = policy.licenses.allow.iter().map(|license| licensee(license)).collect();
    let found = packages.iter().flat_map(|package| {
        let complaints = [
            license(&allowed, package),
            ban(&policy.bans, package, packages),
            source(&policy.sources, package),
            wildcard(&policy.bans, package),
        ];
        let complaints = complaints.into_iter().flatten();
        complaints.map(|complaint| format!("{} {}: {complaint}", package.name, package.version))
    });
    found.collect()
}

fn licensee(license: &str) -> Licensee {
    Licensee::parse(license).unwrap_or_else(|error| panic!("deny.toml allows {license:?}: {error}"))
}

/// A crate with an expression is allowed if the licences that we allow satisfy it: one side of an OR, both of an AND.
fn license(allowed: &[Licensee], package: &Package) -> Option<String> {
    let Some(license) = &package.license else { return Some("names no licence".into()) };
    match Expression::parse_mode(license, ParseMode::LAX) {
        Ok(expression) => {
            let is_allowed =
                expression.evaluate(|required| allowed.iter().any(|allowed| allowed.satisfies(required)));
            (!is_allowed).then(|| format!("licence {license} is not allowed"))
        }
        Err(error) => Some(format!("licence {license:?} is no SPDX expression: {error}")),
    }
}

fn ban(bans: &Bans, package: &Package, packages: &[Package]) -> Option<String> {
    let ban = bans.deny.iter().find(|ban| ban.name == package.name)?;
    let depends_on_it = |other: &&Package| other.dependencies.iter().any(|d| d.name == package.name);
    let mut users = packages.iter().filter(depends_on_it).map(|user| user.name.as_str());
    if ban.wrappers.is_empty() {
        return Some(format!("is banned; used by {:?}", users.collect::<Vec<_>>()));
    }
    let user = users.find(|user| !ban.wrappers.iter().any(|wrapper| wrapper == user))?;
    Some(format!("is banned for {user}: only {:?} may use it", ban.wrappers))
}

fn source(rules: &Sources, package: &Package) -> Option<String> {
    // Both are denied: what is left is crates.io and the workspace itself.
    let Sources { unknown_registry: Deny::Deny, unknown_git: Deny::Deny } = rules;
    let source = package.source.as_deref()?;
    (source != CRATES_IO).then(|| format!("comes from {source}, not from crates.io"))
}

fn wildcard(bans: &Bans, package: &Package) -> Option<String> {
    let Deny::Deny = bans.wildcards;
    let is_allowed = |dependency: &Dependency| dependency.path.is_some() && bans.allow_wildcard_paths;
    let wildcard = package.dependencies.iter().find(|d| d.req == "*" && !is_allowed(d))?;
    Some(format!("depends on any version of {}", wildcard.name))
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository")
}

fn policy() -> Policy {
    let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    toml::from_str(&text).unwrap_or_else(|error| panic!("deny.toml: {error}"))
}

/// The workspace, and the crate that CI builds apart from it.
const MANIFESTS: [&str; 2] = ["Cargo.toml", "crates/migration-model/Cargo.toml"];

/// The crates of every feature and every platform. Cargo fetches those of other platforms the first time.
fn packages(manifest: &str) -> Vec<Package> {
    let mut metadata = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    metadata.args(["metadata", "--locked", "--all-features", "--format-version", "1"]);
    metadata.args(["--manifest-path", manifest]);
    let output = metadata.current_dir(root()).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout).expect("the JSON of cargo metadata");
    metadata.packages
}

#[test]
fn every_dependency_has_an_allowed_licence_and_source_and_none_is_banned() {
    for manifest in MANIFESTS {
        let packages = packages(manifest);
        assert!(packages.len() > 50, "{manifest}: {} packages", packages.len());
        crate::assert_none(&complaints(&policy(), &packages));
    }
}

#[test]
fn forbidden_licences_sources_and_crates_are_seen() {
    let package = |name: &str, license: &str, source: &str, dependency: &str| Package {
        name: name.into(),
        version: "1.0.0".into(),
        license: Some(license.into()).filter(|license: &String| !license.is_empty()),
        source: Some(source.into()),
        dependencies: vec![Dependency { name: dependency.into(), req: "^1".into(), path: None }],
    };
    let complaint = |packages: &[Package]| complaints(&policy(), packages).join("; ");
    let of_license = |license: &str| complaint(&[package("a", license, CRATES_IO, "b")]);

    for license in ["MIT", "MIT/Apache-2.0", "GPL-3.0-only OR MIT", "(MIT OR GPL-2.0-only) AND Unicode-3.0"] {
        assert_eq!(of_license(license), "");
    }
    assert_eq!(of_license("GPL-3.0-only"), "a 1.0.0: licence GPL-3.0-only is not allowed");
    assert_eq!(of_license("MIT AND GPL-3.0-only"), "a 1.0.0: licence MIT AND GPL-3.0-only is not allowed");
    assert_eq!(of_license("MIT OR").split(':').nth(1), Some(" licence \"MIT OR\" is no SPDX expression"));
    assert_eq!(of_license(""), "a 1.0.0: names no licence");

    let git = "git+https://example.com/a.git#0123";
    assert_eq!(
        complaint(&[package("a", "MIT", git, "b")]),
        format!("a 1.0.0: comes from {git}, not from crates.io")
    );

    let banned = |name: &str, user: &str| {
        complaint(&[package(name, "MIT", CRATES_IO, "b"), package(user, "MIT", CRATES_IO, name)])
    };
    assert_eq!(banned("native-tls", "a"), "native-tls 1.0.0: is banned; used by [\"a\"]");
    assert_eq!(banned("openssl-sys", "rdkafka-sys"), "");
    assert!(banned("openssl-sys", "a").starts_with("openssl-sys 1.0.0: is banned for a"));

    let mut wildcard = package("a", "MIT", CRATES_IO, "b");
    wildcard.dependencies[0].req = "*".into();
    assert_eq!(complaint(&[wildcard]), "a 1.0.0: depends on any version of b");
}
