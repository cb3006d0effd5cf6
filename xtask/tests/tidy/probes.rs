//! Who watches over a server asks the question that fits what they do with the answer; docs/guide/deploy.md says which and why.

use std::{fs, path::Path};

use crate::sources::sources;

/// What follows the name of a probe, and what must stand there.
const PROBES: [(&str, &str); 3] = [
    ("livenessProbe:", "path: /livez"),
    ("readinessProbe:", "path: /readyz"),
    ("startupProbe:", "path: /readyz"),
];

/// The probes of a text that ask something else than they should.
fn wrong(text: &str) -> Vec<String> {
    let mut lines = text.lines().map(str::trim).peekable();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        // Unhealthy keeps others from starting or sending: that is readiness.
        if line.starts_with("HEALTHCHECK ") && !line.ends_with(r#"CMD ["duly", "health", "--quiet"]"#) {
            found.push(line.to_owned());
        }
        let next = lines.peek().copied().unwrap_or_default();
        let is_wrong = |(name, path): &(&str, &str)| line == *name && !next.contains(path);
        if PROBES.iter().any(is_wrong) {
            found.push(format!("{line} {next}"));
        }
    }
    found
}

#[test]
fn every_probe_asks_what_its_reader_acts_on() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository");
    let image = fs::read_to_string(root.join("Dockerfile")).expect("the Dockerfile");
    assert!(image.lines().any(|line| line.starts_with("HEALTHCHECK ")), "the image has no health check");
    assert_eq!(wrong(&image), Vec::<String>::new(), "Dockerfile");
    let pages = sources().into_iter().filter(|source| ["md", "yml", "yaml"].contains(&source.extension()));
    let (mut guides, mut found) = (0, Vec::new());
    for page in pages {
        guides += usize::from(page.text.contains("livenessProbe:"));
        found.extend(wrong(&page.text).into_iter().map(|probe| format!("{}: {probe}", page.path.display())));
    }
    assert!(guides >= 2, "the guides in English and Chinese show probes");
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_probe_that_asks_the_wrong_question_is_seen() {
    for text in [
        r#"HEALTHCHECK CMD ["duly", "stats", "--quiet"]"#,
        r#"HEALTHCHECK --interval=5s CMD ["duly", "health", "--live"]"#,
        "livenessProbe:\n  httpGet: { path: /readyz, port: 7380 }",
        "readinessProbe:\n  httpGet: { path: /livez, port: 7380 }",
    ] {
        assert_eq!(wrong(text).len(), 1, "{text}");
    }
    assert!(
        wrong("livenessProbe:\n  httpGet: { path: /livez }\nreadinessProbe:\n  httpGet: { path: /readyz }")
            .is_empty()
    );
}
