//! Links between our pages lead somewhere: to a file that is there, and to a heading that it has.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
    process::Command,
};

use crate::sources::{Source, sources};

/// The lines of a page that are no code.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// A line without what stands in backquotes.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// The addresses of `[text](address)` and `![text](address)`.
fn addresses(line: &str) -> Vec<String> {
    let line = without_code(line);
    let ends = |rest: &str| rest.split_once(')').map(|(address, _)| address.trim().to_owned());
    line.split("](").skip(1).filter_map(ends).collect()
}

/// The name that a heading gets from GitHub, and from the site.
fn anchor(heading: &str) -> String {
    let mut text = String::new();
    let mut rest = heading;
    // Of a link, only its text counts.
    while let Some((before, link)) = rest.split_once("](") {
        text.push_str(before);
        rest = link.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    let kept = text.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter_map(|(_, line)| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then_some(heading)?.strip_prefix(' ')
    });
    headings.map(anchor).collect()
}

/// `docs/guide/../adr` is `docs/adr`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, part| {
        match part {
            Component::ParentDir if path.pop() => {}
            part => path.push(part),
        }
        path
    })
}

fn is_page(source: &Source) -> bool {
    source.extension() == "md"
}

/// Other sites, and items of Rust in pages that rustdoc shows.
fn is_elsewhere(address: &str) -> bool {
    address.contains("://") || address.contains("::") || address.starts_with("mailto:")
}

/// Links of `pages` that lead nowhere; `is_there` says whether a path is.
fn dead_links(pages: &[&Source], is_there: impl Fn(&Path) -> bool) -> Vec<String> {
    let known: BTreeMap<&Path, BTreeSet<String>> =
        pages.iter().map(|page| (page.path.as_path(), anchors(&page.text))).collect();
    let mut found = Vec::new();
    for page in pages {
        for (number, line) in prose(&page.text) {
            for address in addresses(line).into_iter().filter(|address| !is_elsewhere(address)) {
                let (file, heading) = address.split_once('#').unwrap_or((&address, ""));
                let folder = page.path.parent().unwrap_or(Path::new(""));
                let target = if file.is_empty() { page.path.clone() } else { normal(&folder.join(file)) };
                let what = match known.get(target.as_path()) {
                    // `normal` leaves `..` only at the beginning.
                    _ if target.has_root() || target.starts_with("..") => "outside of the repository",
                    Some(anchors) if !heading.is_empty() && !anchors.contains(heading) => "no such heading",
                    None if !is_there(&target) => "no such file",
                    _ => continue,
                };
                found.push(format!("{}:{number}: {address}: {what}", page.path.display()));
            }
        }
    }
    found
}

/// The files that git knows, or would know: no reader has what it ignores.
fn files(root: &Path) -> BTreeSet<PathBuf> {
    let mut git = Command::new("git");
    git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let listed = git.output().expect("git lists the files of the repository");
    assert!(listed.status.success(), "git ls-files failed: {listed:?}");
    String::from_utf8(listed.stdout).expect("UTF-8").split_terminator('\0').map(PathBuf::from).collect()
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository");
    let sources = sources();
    let pages: Vec<_> = sources.iter().filter(|source| is_page(source)).collect();
    assert!(pages.len() > 80, "{} pages", pages.len());
    let files = files(root);
    let is_there = |path: &Path| files.iter().any(|file| file.starts_with(path)) && root.join(path).exists();
    crate::assert_none(&dead_links(&pages, is_there));
}

#[test]
fn a_link_that_leads_nowhere_is_seen() {
    let page = |path: &str, text: &str| Source::new(path, text.to_owned());
    let one = page(
        "docs/one.md",
        "# One `two`, three\n[a](b/two.md#第一-节) [b](#one-two-three) [c](https://a.b) [d](crate::D)\n\
         `[e](e.md)`\n```sh\n# No heading\n[f](f.md)\n```\n[g](../g.rs)\n",
    );
    let two = page("docs/b/two.md", "## 第一 节\n[a](../one.md#two) [b](two.md#no-heading) [c](three.md)\n");
    let three = page("docs/c.md", "[a](/etc/hostname) [b](../../h.rs) [c](target/built.txt)\n");
    let dead = dead_links(&[&one, &two, &three], |path| {
        path != Path::new("docs/b/three.md") && !path.starts_with("docs/target")
    });
    assert_eq!(
        dead,
        [
            "docs/b/two.md:2: ../one.md#two: no such heading",
            "docs/b/two.md:2: two.md#no-heading: no such heading",
            "docs/b/two.md:2: three.md: no such file",
            "docs/c.md:1: /etc/hostname: outside of the repository",
            "docs/c.md:1: ../../h.rs: outside of the repository",
            "docs/c.md:1: target/built.txt: no such file",
        ]
    );
}
