//! `duly forecast`: how many come due when.

use clap::Args;

use super::{Failure, Output, Tint, clock, input};
use duly_client::{Client, ForecastSpan, wire::Moment};

/// The longest bar.
const BAR: u64 = 40;

/// Show how many messages come due when
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly forecast
  duly forecast --from 2030-01-01T00:00:00Z --to 2030-01-02T00:00:00Z --buckets 24

Read from counters, so that far times are counted in wide spans: with the embedded store, of about a minute beyond an
hour ahead, an hour beyond days, three days beyond months; with Redis and SQL, of a minute, or of an hour where the
parts are as long. A span counts once, in the first part that it overlaps.")]
pub(crate) struct Ahead {
    /// From this time; now unless told otherwise
    #[arg(long, value_name = "TIME", value_parser = input::moment)]
    from: Option<Moment>,

    /// To this time
    #[arg(long, value_name = "TIME", value_parser = input::moment)]
    to: Option<Moment>,

    /// Number of equal parts
    #[arg(long, value_name = "COUNT")]
    buckets: Option<usize>,
}

impl Ahead {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let span = ForecastSpan { from: self.from, to: self.to, buckets: self.buckets };
        let forecast = client.forecast(&span).await?;
        out.answer(&forecast, |forecast| {
            let most = forecast.buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
            let mut rows = out.table(&["FROM", ">COUNT", ""]);
            for bucket in &forecast.buckets {
                // At least one mark for what is there at all.
                let length = (bucket.count * BAR).div_ceil(most);
                let bar = "▇".repeat(usize::try_from(length).unwrap_or(0));
                rows.row([bucket.from.clone(), clock::grouped(bucket.count), bar]);
            }
            let text = rows.text();
            if out.colour { text.replace('▇', &out.tint(Tint::Cyan, "▇")) } else { text }
        })
    }
}
