//! The figures, in Markdown for people or as lines of JSON for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{Figures, phase::Phase, system::System};

/// One object per system and phase.
pub(super) fn json(all: &[Figures]) -> String {
    all.iter().fold(String::new(), |mut text, it| {
        let mut line = json!({
            "system": it.system.name,
            "durability": it.system.durability,
            "phase": it.phase.word(),
        });
        if let (Some(line), Some(values)) = (line.as_object_mut(), it.values.as_object()) {
            line.extend(values.clone());
        }
        let _ = writeln!(text, "{line}");
        text
    })
}

/// A table of what was measured, and one of who used the processors meanwhile.
pub(super) fn render(all: &[Figures]) -> String {
    const HEAD: [&str; 8] = [
        "system",
        "an accepted message has",
        "batches /s",
        "64 posters /s",
        "late p50 / p99 ms",
        "burst s",
        "bytes per pending",
        "kill -9: lost of accepted",
    ];
    let rows = systems(all).into_iter().map(|system| {
        let of = |phase| values(all, system, phase);
        let cell = |phase, show: fn(&Value) -> String| of(phase).map(show).unwrap_or_default();
        vec![
            system.name.to_owned(),
            system.durability.to_owned(),
            cell(Phase::Batch, |it| number(&it["per_s"])),
            cell(Phase::Single, |it| number(&it["per_s"])),
            cell(Phase::Late, late),
            cell(Phase::Burst, burst),
            cell(Phase::Fill, |it| {
                format!("{} {}", number(&it["bytes_per_message"]), word(&it["bytes_are"]))
            }),
            cell(Phase::Crash, |it| format!("{} of {}", number(&it["missing"]), number(&it["accepted"]))),
        ]
    });
    let work = lines(&HEAD, rows);
    let head = ["driver's share of processor time, %", "batches", "posters", "late", "burst"];
    let rows = systems(all).into_iter().map(|system| {
        let phases = [Phase::Batch, Phase::Single, Phase::Late, Phase::Burst];
        let shares = phases.map(|phase| values(all, system, phase).map(share).unwrap_or_default());
        [system.name.to_owned()].into_iter().chain(shares).collect()
    });
    format!("{work}\n{}", lines(&head, rows))
}

/// Those with figures, in their order.
fn systems(all: &[Figures]) -> Vec<&'static System> {
    let mut found: Vec<&'static System> = all.iter().map(|it| it.system).collect();
    found.dedup_by_key(|system| system.name);
    found
}

fn values<'a>(all: &'a [Figures], system: &System, phase: Phase) -> Option<&'a Value> {
    all.iter().find(|it| it.system.name == system.name && it.phase == phase).map(|it| &it.values)
}

fn late(it: &Value) -> String {
    let mut text = format!("{} / {}", number(&it["p50_ms"]), number(&it["p99_ms"]));
    let count = |name: &str| it[name].as_u64().unwrap_or_default();
    if count("early") > 0 {
        let _ = write!(text, ", {} % early", count("early") * 100 / count("received").max(1));
    }
    if count("received") < count("sent") {
        let _ = write!(text, ", {} missing", count("sent") - count("received"));
    }
    let _ = write!(text, " at {}/s", number(&it["sent_per_s"]));
    text
}

fn burst(it: &Value) -> String {
    let count = |name: &str| it[name].as_u64().unwrap_or_default();
    let mut text =
        format!("{:.2} of {}", it["burst_s"].as_f64().unwrap_or_default(), number(&it["accepted"]));
    if count("received") < count("accepted") {
        let _ = write!(text, ", {} missing", count("accepted") - count("received"));
    }
    if it["spare_s"].as_f64().is_some_and(|spare| spare < 0.0) {
        text.push_str(", the last batch after the instant");
    }
    text
}

/// Of the driver's and the servers' together.
fn share(it: &Value) -> String {
    let (driver, servers) = (it["driver_cpu_s"].as_f64(), it["server_cpu_s"].as_f64());
    let Some((driver, servers)) = driver.zip(servers) else { return String::new() };
    format!("{:.0}", 100.0 * driver / (driver + servers).max(0.001))
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whole, with commas between thousands; a small one with a digit after the point.
fn number(value: &Value) -> String {
    let value = value.as_f64().unwrap_or_default();
    if value.abs() < 10.0 && value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = if value.round() < 0.0 { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn lines(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> =
        [head.iter().map(|word| (*word).to_owned()).collect()].into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!(" {cell:<width$} |"));
        format!("|{}\n", cells.collect::<String>())
    };
    let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
    let body: String = rows[1..].iter().map(|row| line(row)).collect();
    format!("{}{}{body}", line(&rows[0]), line(&rule))
}
