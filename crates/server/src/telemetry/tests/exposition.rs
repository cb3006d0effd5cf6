//! A strict reader of Prometheus's text form: whatever a scraper might stumble over is an error here.

use std::collections::{BTreeMap, BTreeSet};

/// One line with a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

/// A page that was read.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// The kind of each metric.
    pub(super) kinds: BTreeMap<String, String>,
    pub(super) samples: Vec<Sample>,
}

impl Page {
    /// Reads a page, or says which line is wrong and why.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let mut page = Self::default();
        let (mut current, mut seen) = (String::new(), BTreeSet::new());
        if !text.ends_with('\n') {
            return Err("the last line has no end".into());
        }
        for line in text.lines() {
            let wrong = |why: &str| Err(format!("{why}: {line}"));
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let Some((name, kind)) = rest.split_once(' ') else { return wrong("no kind") };
                if page.kinds.insert(name.into(), kind.into()).is_some() {
                    return wrong("declared twice");
                }
                current = name.into();
            } else if let Some(rest) = line.strip_prefix("# HELP ") {
                if rest.split_once(' ').is_none_or(|(_, help)| help.is_empty()) {
                    return wrong("no help");
                }
            } else {
                let sample = sample(line)?;
                let kind = page.kinds.get(&current).map_or("", String::as_str);
                let suffixes: &[&str] =
                    if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
                if !suffixes.iter().any(|suffix| sample.name == format!("{current}{suffix}")) {
                    return wrong("not below its TYPE");
                }
                if kind == "counter" && !sample.name.ends_with("_total") {
                    return wrong("a counter that is no total");
                }
                if !seen.insert((sample.name.clone(), sample.labels.clone())) {
                    return wrong("there twice");
                }
                page.samples.push(sample);
            }
        }
        page.check_histograms()?;
        Ok(page)
    }

    /// Buckets ascend, their counts too, and the last one is the count of all.
    fn check_histograms(&self) -> Result<(), String> {
        for (name, _) in self.kinds.iter().filter(|(_, kind)| *kind == "histogram") {
            let mut series: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
            for sample in self.of(&format!("{name}_bucket")) {
                let mut labels = sample.labels.clone();
                let bound = labels.remove("le").ok_or(format!("{name}: a bucket without a bound"))?;
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().map_err(|_| bound)? };
                series.entry(labels).or_default().push((bound, sample.value));
            }
            for (labels, buckets) in series {
                let ascend = buckets.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1);
                let all = buckets.last().map(|last| (last.0, Some(last.1)));
                if !ascend || all != Some((f64::INFINITY, self.value(&format!("{name}_count"), &labels))) {
                    return Err(format!("{name} {labels:?} is no histogram: {buckets:?}"));
                }
                self.value(&format!("{name}_sum"), &labels).ok_or(format!("{name} has no sum"))?;
            }
        }
        Ok(())
    }

    pub(super) fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| sample.name == name)
    }

    fn value(&self, name: &str, labels: &BTreeMap<String, String>) -> Option<f64> {
        self.of(name).find(|sample| sample.labels == *labels).map(|sample| sample.value)
    }

    /// The value of a line with exactly these labels.
    pub(super) fn get(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let own = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.value(name, &own).unwrap_or_else(|| panic!("no {name} {labels:?}"))
    }
}

fn sample(line: &str) -> Result<Sample, String> {
    let wrong = |why: &str| format!("{why}: {line}");
    let name_end = line.find(['{', ' ']).ok_or_else(|| wrong("no value"))?;
    let (name, mut rest) = line.split_at(name_end);
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
        return Err(wrong("a bad name"));
    }
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").ok_or_else(|| wrong("a bad label"))?;
            let (value, after) = quoted(after).ok_or_else(|| wrong("a label without an end"))?;
            if labels.insert(label.to_owned(), value).is_some() {
                return Err(wrong("a label twice"));
            }
            match (after.strip_prefix(','), after.strip_prefix('}')) {
                (Some(more), _) => rest = more,
                (_, Some(after)) => {
                    rest = after;
                    break;
                }
                _ => return Err(wrong("labels without an end")),
            }
        }
    }
    let value =
        rest.strip_prefix(' ').and_then(|value| value.parse().ok()).ok_or_else(|| wrong("a bad value"))?;
    Ok(Sample { name: name.to_owned(), labels, value })
}

/// What stands before the closing quote, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}

#[test]
fn the_reader_itself_is_strict() {
    let good = "# HELP a_total x\n# TYPE a_total counter\na_total{b=\"c\\\"\\\\\"} 1\n";
    assert_eq!(Page::read(good).unwrap().get("a_total", &[("b", "c\"\\")]), 1.0);
    for bad in [
        "a_total 1\n",
        "# TYPE a_total counter\n# TYPE a_total counter\n",
        "# TYPE a counter\na 1\n",
        "# TYPE a gauge\na 1\na 2\n",
        "# TYPE a gauge\na{b=\"c} 1\n",
        "# TYPE a gauge\na{b=\"c\"} x\n",
        "# TYPE a gauge\na 1",
        "# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
        "# TYPE a histogram\na_bucket{le=\"1\"} 1\na_sum 1\na_count 1\n",
    ] {
        assert!(Page::read(bad).is_err(), "{bad}");
    }
}
