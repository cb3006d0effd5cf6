//! Figures, as a table for people or as JSON lines for programs.

/// One figure.
struct Row {
    name: String,
    value: f64,
    unit: &'static str,
    reference: Option<f64>,
}

/// All figures of a run, printed as they come.
pub struct Report {
    json: bool,
    rows: usize,
}

impl Report {
    /// Begins a report.
    pub fn new(json: bool) -> Self {
        if !json {
            println!("{:<58} {:>14} {:<8} {:>14} {:>7}", "", "value", "unit", "reference", "ratio");
        }
        Self { json, rows: 0 }
    }

    /// A figure that stands alone.
    pub fn alone(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.print(&Row { name: name.into(), value, unit, reference: None });
    }

    /// A figure beside what it is measured against.
    pub fn beside(&mut self, name: impl Into<String>, value: f64, unit: &'static str, reference: f64) {
        self.print(&Row { name: name.into(), value, unit, reference: Some(reference) });
    }

    fn print(&mut self, row: &Row) {
        self.rows += 1;
        let ratio = row.reference.map(|reference| row.value / reference);
        if self.json {
            let number = |value: Option<f64>| value.map_or("null".into(), |value| format!("{value:.4}"));
            println!(
                r#"{{"name":"{}","value":{:.4},"unit":"{}","reference":{},"ratio":{}}}"#,
                row.name,
                row.value,
                row.unit,
                number(row.reference),
                number(ratio)
            );
            return;
        }
        let text = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
        println!(
            "{:<58} {:>14.2} {:<8} {:>14} {:>7}",
            row.name,
            row.value,
            row.unit,
            text(row.reference),
            text(ratio)
        );
    }

    /// Ends it.
    pub fn finish(&self) {
        if !self.json {
            println!("{} figures; ratio = value / reference, the reference measured in this run", self.rows);
        }
    }
}

/// The value that `part` (0 to 1) of the sorted values do not exceed.
pub fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = ((sorted.len() as f64 * part).ceil() as usize).clamp(1, sorted.len()) - 1;
    sorted[at]
}
