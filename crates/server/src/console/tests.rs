use std::{collections::BTreeSet, fs, path::Path};

use super::*;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/console/assets");
/// The whole page, before any compression.
const BYTES_MAX: usize = 300_000;

fn text(file: &File) -> &'static str {
    std::str::from_utf8(file.bytes).unwrap()
}

fn own() -> impl Iterator<Item = &'static File> {
    FILES.iter().filter(|file| !file.path.starts_with("vendor/"))
}

fn walk(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else {
            let below = path.strip_prefix(FOLDER).unwrap().to_str().unwrap();
            found.insert(below.replace('\\', "/"));
        }
    }
}

#[test]
fn every_file_of_the_folder_is_in_the_binary() {
    let mut there = BTreeSet::new();
    walk(Path::new(FOLDER), &mut there);
    // Words for readers of the source; a browser has no use for them.
    there.retain(|path| !path.ends_with(".md") && !path.ends_with(".txt"));
    let listed: BTreeSet<String> = FILES.iter().map(|file| file.path.to_owned()).collect();
    assert_eq!(listed, there);
}

#[test]
fn the_whole_page_is_small() {
    let sum: usize = FILES.iter().map(|file| file.bytes.len()).sum();
    assert!(sum < BYTES_MAX, "{sum} bytes");
}

#[test]
fn what_is_taken_from_others_is_what_its_list_says() {
    let list = fs::read_to_string(Path::new(FOLDER).join("vendor/README.md")).unwrap();
    for file in FILES.iter().filter(|file| file.path.starts_with("vendor/")) {
        let name = file.path.trim_start_matches("vendor/");
        let hash: String = Sha256::digest(file.bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let row = list.lines().find(|line| line.starts_with(&format!("| `{name}`")));
        assert!(row.is_some_and(|row| row.contains(&hash)), "{name} has the sha256 {hash}");
    }
}

#[test]
fn nothing_turns_text_into_markup_and_nothing_is_inline() {
    for file in own() {
        for forbidden in
            ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
        {
            assert!(!text(file).contains(forbidden), "{} has {forbidden}", file.path);
        }
    }
    let page = text(FILES.iter().find(|file| file.path == PAGE).unwrap());
    for inline in ["<style", " style=", " onload=", "<script>"] {
        assert!(!page.contains(inline), "{inline}");
    }
}

#[test]
fn every_address_is_relative_and_leads_to_a_file() {
    let known: BTreeSet<&str> = FILES.iter().map(|file| file.path).collect();
    for file in own().filter(|file| file.path.ends_with(".js")) {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for line in text(file).lines().filter(|line| line.contains(" from \"")) {
            let Some((_, rest)) = line.split_once(" from \"") else { continue };
            let to = rest.split('"').next().unwrap();
            let path = match to.strip_prefix("../") {
                Some(up) => up.to_owned(),
                None => format!("{folder}/{}", to.strip_prefix("./").unwrap()),
            };
            assert!(known.contains(path.as_str()), "{}: {to}", file.path);
        }
    }
    let page = text(FILES.iter().find(|file| file.path == PAGE).unwrap());
    let named = page.split("href=\"").chain(page.split("src=\"")).skip(1);
    for to in
        named.filter_map(|rest| rest.split('"').next()).filter(|to| to.contains('.') && !to.contains('<'))
    {
        assert!(known.contains(to), "{to}");
    }
}

#[test]
fn every_module_is_loaded_at_once_and_not_one_after_the_other() {
    let page = text(FILES.iter().find(|file| file.path == PAGE).unwrap());
    let early = ["js/early.js", "js/main.js"];
    for file in own().filter(|file| file.path.ends_with(".js") && !early.contains(&file.path)) {
        assert!(page.contains(&format!("rel=\"modulepreload\" href=\"{}\"", file.path)), "{}", file.path);
    }
}

#[test]
fn both_languages_have_the_same_words() {
    let keys = |path: &str| -> BTreeSet<&str> {
        let file = FILES.iter().find(|file| file.path == path).unwrap();
        let lines = text(file).lines().filter_map(|line| line.strip_prefix("  "));
        lines.filter_map(|line| line.split_once(": ")).map(|(key, _)| key.trim_matches('"')).collect()
    };
    assert_eq!(keys("words/en.js"), keys("words/zh.js"));
}

#[test]
fn who_has_a_file_is_not_sent_it_again() {
    let file = &FILES[0];
    let tag = tag(file);
    let with = |value: &str| {
        let headers: HeaderMap =
            [(header::IF_NONE_MATCH, HeaderValue::from_str(value).unwrap())].into_iter().collect();
        answer(file, &tag, &headers).status()
    };
    let own = tag.to_str().unwrap();
    assert_eq!(with(own), StatusCode::NOT_MODIFIED);
    assert_eq!(with(&format!("\"other\", W/{own}")), StatusCode::NOT_MODIFIED);
    assert_eq!(with("*"), StatusCode::NOT_MODIFIED);
    assert_eq!(with("\"other\""), StatusCode::OK);
    assert_eq!(answer(file, &tag, &HeaderMap::new()).status(), StatusCode::OK);
}

#[test]
fn every_file_is_guarded() {
    for file in FILES {
        let response = answer(file, &tag(file), &HeaderMap::new());
        let header =
            |name: &str| response.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        assert_eq!(header("content-security-policy"), POLICY, "{}", file.path);
        assert!(!header("content-type").contains("octet-stream"), "{}", file.path);
        assert_eq!(header("x-frame-options"), "DENY");
        assert_eq!(header("cache-control"), "no-cache");
    }
    assert!(!POLICY.contains("unsafe"), "{POLICY}");
}
