//! "Add a store" in CONTRIBUTING.md is complete: it names every file that names a store, and a store that is added by it works.

mod lists;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::sources::{Source, sources};

/// How files outside a store's own folder name it.
const NAMES: [&str; 4] = ["redis_and_mysql", "RedisAndMysql", "StoreConfig::Redis(", "StoreConfig::Sql("];
/// A store's own code, and tests and benchmarks of one store or another.
const OWN: [&str; 5] =
    ["crates/stores/src/redis_and_mysql/", "crates/stores/src/sql/", "/tests/", "/benches/", "xtask/"];
/// Of the tests, the one that runs the suite of the port on every store.
const SUITE: &str = "crates/stores/tests/conformance.rs";

/// The files that the table names.
fn listed(sources: &[Source]) -> BTreeSet<String> {
    let page =
        sources.iter().find(|source| source.path == Path::new("CONTRIBUTING.md")).expect("CONTRIBUTING.md");
    let (_, section) = page.text.split_once("\n## Add a store\n").expect("the section");
    let rows =
        section.lines().take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("| `"));
    let files =
        rows.filter_map(|row| row.split('|').nth(1)).flat_map(|cell| cell.split('`').skip(1).step_by(2));
    files.filter(|file| !file.contains('<')).map(Into::into).collect()
}

/// The files that name a store, but for their tests.
fn naming(sources: &[Source]) -> BTreeSet<String> {
    let path = |source: &Source| source.path.to_string_lossy().replace('\\', "/");
    let is_code = |source: &&Source| source.is_rust() || source.name() == "Cargo.toml";
    let is_own = |path: &str| path != SUITE && OWN.iter().any(|own| path.contains(own));
    let names_one = |source: &&Source| {
        let code = source.text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        NAMES.iter().any(|name| code.contains(name))
    };
    let sources = sources.iter().filter(is_code).filter(|source| !is_own(&path(source)));
    sources.filter(names_one).map(path).collect()
}

#[test]
fn the_guide_names_every_file_that_names_a_store() {
    let sources = sources();
    assert_eq!(naming(&sources), listed(&sources), "left: the files, right: the table in CONTRIBUTING.md");
}

#[test]
fn a_store_that_is_added_by_the_guide_opens_and_delivers() {
    let copy = Copy::fresh();
    copy.edit("crates/stores/Cargo.toml", |text| {
        // The suite needs the test kit, and that every store and its server.
        let text = text.split("[dev-dependencies]").next().unwrap_or_default();
        text.replace("[features]\n", "[features]\ndummy = []\n") + "[lints]\nworkspace = true\n"
    });
    copy.edit("crates/stores/src/lib.rs", |text| renamed_arms(&text));
    copy.edit("crates/stores/src/config.rs", |text| renamed_arms(&text));
    copy.add_store();
    let run = ["test", "--offline", "-p", "duly-stores", "--no-default-features", "--features", "dummy"];
    let done = copy.cargo(&[&run[..], &["--test", "dummy"]].concat());
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("1 passed") && !said.contains("warning: unused"), "{said}");
}

/// Every line behind the feature `embedded` once more, for `dummy`.
fn renamed_arms(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        out.push((*line).to_owned());
        if at > 0 && lines[at - 1].trim() == "#[cfg(feature = \"embedded\")]" {
            let same = |line: &str| line.replace("embedded", "dummy").replace("Embedded", "Dummy");
            out.extend([same(lines[at - 1]), same(line)]);
        }
    }
    out.join("\n") + "\n"
}

/// The domain and the stores alone, as a workspace of their own. What is compiled there stays for the next time.
struct Copy(PathBuf);

impl Copy {
    fn fresh() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository");
        let copy = Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join("add-a-store"));
        let _ = fs::remove_dir_all(copy.0.join("crates"));
        for name in ["core", "redis-link", "stores"] {
            for file in [format!("crates/{name}/Cargo.toml"), format!("crates/{name}/src")] {
                copy_all(&root.join(&file), &copy.0.join(&file));
            }
        }
        for file in ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"] {
            copy_all(&root.join(file), &copy.0.join(file));
        }
        copy.edit("Cargo.toml", |text| {
            let own = |line: &&str| !line.starts_with("members =") && !line.starts_with("default-members =");
            let text = text.split("[profile.").next().unwrap_or_default();
            let text = text.lines().filter(own).collect::<Vec<_>>().join("\n");
            text.replacen("[workspace]", "[workspace]\nmembers = [\"crates/*\"]", 1)
        });
        copy
    }

    fn edit(&self, file: &str, change: impl FnOnce(String) -> String) {
        let path = self.0.join(file);
        let text = fs::read_to_string(&path).expect(file);
        let changed = change(text.clone());
        assert_ne!(text, changed, "{file} is as it was");
        fs::write(path, changed).expect(file);
    }

    /// The folder of the store: the reference under another name, with settings of its own, and a test that opens it.
    fn add_store(&self) {
        let (memory, dummy) =
            (self.0.join("crates/stores/src/memory"), self.0.join("crates/stores/src/dummy"));
        copy_all(&memory, &dummy);
        for file in ["mod.rs", "claims.rs", "query.rs", "state.rs"] {
            let path = format!("crates/stores/src/dummy/{file}");
            self.edit(&path, |text| {
                let text = text.replace("MemoryStore", "DummyStore");
                if file == "mod.rs" {
                    text.replacen(
                        "\nmod query;",
                        "\nmod config;\nmod query;\npub use config::DummyConfig;",
                        1,
                    )
                } else {
                    text + "\n"
                }
            });
        }
        fs::write(dummy.join("config.rs"), include_str!("add_a_store/dummy_config.rs")).expect("config.rs");
        let tests = self.0.join("crates/stores/tests");
        fs::create_dir_all(&tests).expect("tests");
        fs::write(tests.join("dummy.rs"), include_str!("add_a_store/dummy_test.rs")).expect("dummy.rs");
    }

    fn cargo(&self, arguments: &[&str]) -> Output {
        let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
        cargo.args(arguments).current_dir(&self.0).env("CARGO_TARGET_DIR", self.0.join("target"));
        cargo.env_remove("RUSTFLAGS").output().expect("cargo")
    }
}

fn copy_all(from: &Path, to: &Path) {
    if !from.is_dir() {
        fs::create_dir_all(to.parent().expect("a file lies in a folder")).expect("a folder");
        fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        return;
    }
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        copy_all(&entry.path(), &to.join(entry.file_name()));
    }
}
