//! What a page of rustdoc says of an item, as text.

use std::fmt::Write;

const HEADER: &str = " class=\"code-header\">";
/// Auto traits whose loss breaks users.
const DENIED: [&str; 3] = [" !Send for ", " !Sync for ", " !Unpin for "];
/// What rustdoc puts behind a type that has traits of note.
const NOTE: char = 'ⓘ';

/// The addresses of the links that begin with `mark`.
pub(super) fn links<'a>(html: &'a str, mark: &str) -> Vec<&'a str> {
    html.split(mark).skip(1).filter_map(|rest| between(rest, "href=\"", "\"")).collect()
}

/// What a module exports of others.
pub(super) fn reexports(index: &str) -> Vec<String> {
    let lines = index.split("<dt id=\"reexport.").skip(1);
    lines.filter_map(|rest| between(rest, "<code>", "</code>")).map(|line| one_line(&plain(line))).collect()
}

/// The item's declaration, its methods, and the traits that it implements. Methods of traits are told by the trait.
pub(super) fn described(page: &str) -> String {
    let mut sections = page.split("<h2 id=\"");
    let head = sections.next().unwrap_or_default();
    let declared = between(head, "<pre class=\"rust item-decl\"><code>", "</code></pre>").unwrap_or_default();
    let mut text = String::new();
    for line in plain(declared).lines().filter(|line| !line.trim().is_empty()) {
        let _ = writeln!(text, "    {}", line.trim_end());
    }
    for section in sections {
        let (id, rest) = section.split_once('"').unwrap_or_default();
        // Each `impl` with its methods. rustdoc promises no order of them.
        let mut blocks: Vec<String> = Vec::new();
        for (is_impl, header) in rest.split(HEADER).skip(1).map(header) {
            let is_shown = match id {
                "implementations" => true,
                "trait-implementations" | "foreign-impls" => {
                    is_impl && !header.contains("StructuralPartialEq")
                }
                // An auto trait is there unless it is denied.
                "synthetic-implementations" => DENIED.iter().any(|denied| header.contains(denied)),
                _ => false,
            };
            if is_shown && is_impl {
                blocks.push(format!("    {header}\n"));
            } else if is_shown {
                let block = blocks.last_mut().unwrap_or(&mut text);
                let _ = writeln!(block, "        {header}");
            }
        }
        blocks.sort();
        text += &blocks.concat();
    }
    text
}

/// The heading that `html` begins with, and whether it is that of an `impl`: those of methods are a level below.
fn header(html: &str) -> (bool, String) {
    let end = html.find("</h").unwrap_or(html.len());
    (html[end..].starts_with("</h3>"), one_line(&plain(&html[..end])))
}

/// The text of `html`, without the lines that open and close a part of it.
fn plain(html: &str) -> String {
    let mut text = String::new();
    for (index, part) in html.split("<summary").enumerate() {
        let shown =
            if index == 0 { part } else { part.split_once("</summary>").map_or("", |(_, rest)| rest) };
        for piece in shown.split('<').enumerate() {
            let (tag, words) = match piece {
                (0, words) => ("", words),
                (_, tagged) => tagged.split_once('>').unwrap_or_default(),
            };
            if tag.trim_start_matches('/').starts_with("div") {
                text.push('\n');
            }
            text += words;
        }
    }
    let entities =
        [("&nbsp;", " "), ("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    let text = text.replace(NOTE, "");
    entities.into_iter().fold(text, |text, (entity, letter)| text.replace(entity, letter))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(from)?;
    rest.split_once(to).map(|(inner, _)| inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_told_as_the_source_would_be() {
        let page = concat!(
            "<pre class=\"rust item-decl\"><code><div class=\"code-attribute\">#[non_exhaustive]</div>pub struct <a>Id</a>&lt;T&gt; {\n",
            "<details><summary class=\"hideme\"><span>Show 1 field</span></summary>    pub a: T,\n</details>}</code></pre>",
            "<h2 id=\"implementations\" class=\"section-header\"><h3 class=\"code-header\">impl Id</h3>",
            "<h4 class=\"code-header\">pub fn <a>parse</a>(&amp;self)<div class=\"where\">where\n    T: A</div></h4>",
            "<h2 id=\"trait-implementations\"><h3 class=\"code-header\">impl <a>Ord</a> for Id</h3>",
            "<h3 class=\"code-header\">impl <a>Clone</a> for Id</h3>",
            "<h4 class=\"code-header\">fn clone(&amp;self)</h4>",
            "<h2 id=\"synthetic-implementations\"><h3 class=\"code-header\">impl Send for Id</h3>",
            "<h3 class=\"code-header\">impl !Sync for Id</h3>",
            "<h2 id=\"blanket-implementations\"><h3 class=\"code-header\">impl&lt;T&gt; Any for T</h3>",
        );
        let lines = [
            "    #[non_exhaustive]",
            "    pub struct Id<T> {",
            "        pub a: T,",
            "    }",
            "    impl Id",
            "        pub fn parse(&self) where T: A",
            "    impl Clone for Id",
            "    impl Ord for Id",
            "    impl !Sync for Id",
        ];
        assert_eq!(described(page).lines().collect::<Vec<_>>(), lines);
    }
}
