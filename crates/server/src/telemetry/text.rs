//! Prometheus's text form, version 0.0.4: the one that every scraper reads.

use std::fmt::{Display, Write};

use super::page::{Family, Kind, Page, Value, buckets};

/// The page as text.
pub(super) fn text(page: &Page) -> String {
    let mut text = String::new();
    page.families.iter().for_each(|family| write_family(&mut text, family));
    text
}

fn write_family(text: &mut String, family: &Family) {
    let kind = match family.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let name = family.name;
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", family.help);
    for sample in &family.samples {
        let labels = &sample.labels;
        match &sample.value {
            Value::Count(count) => write_line(text, (name, ""), labels, None, count),
            Value::Number(number) => write_line(text, (name, ""), labels, None, number),
            Value::Spans(spans) => {
                for (bound, count) in buckets(spans) {
                    write_line(text, (name, "_bucket"), labels, Some(&bound.to_string()), count);
                }
                write_line(text, (name, "_bucket"), labels, Some("+Inf"), spans.count());
                write_line(text, (name, "_sum"), labels, None, spans.sum().as_secs_f64());
                write_line(text, (name, "_count"), labels, None, spans.count());
            }
        }
    }
}

fn write_line(
    text: &mut String,
    (name, suffix): (&str, &str),
    labels: &[(&'static str, String)],
    bound: Option<&str>,
    value: impl Display,
) {
    let _ = write!(text, "{name}{suffix}");
    let mut before = '{';
    let labels = labels.iter().map(|(name, label)| (*name, label.as_str()));
    for (name, label) in labels.chain(bound.map(|bound| ("le", bound))) {
        let _ = write!(text, "{before}{name}=\"{}\"", Escaped(label));
        before = ',';
    }
    if before == ',' {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '"' => f.write_str("\\\""),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}
