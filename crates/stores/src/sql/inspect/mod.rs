//! Checks whether messages are safe in a database.

mod mysql;
mod postgres;

use std::time::Duration;

use duly_core::store::{StoreError, StoreErrorKind};

use super::{
    Options,
    address::Address,
    connectivity::{unreachable, why},
};

/// A database that takes longer to answer counts as unreachable.
const WITHIN: Duration = Duration::from_secs(20);
/// The table that people see, and those beside it.
const TABLES: [&str; 6] =
    ["delay_message", "duly_store", "duly_lane", "duly_count", "duly_node", "duly_shard_lease"];

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Weight {
    /// It works, and may surprise somebody.
    Odd,
    /// It loses messages when the database crashes. [`Options::allow_volatile`] lets it pass.
    Volatile,
    /// It does not work.
    Unfit,
}

/// Something about a database that loses messages, or that cannot work, or that surprises.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The finding.
    pub what: String,
    /// The remedy.
    pub remedy: String,
    /// How bad it is.
    pub weight: Weight,
}

impl Finding {
    fn new(weight: Weight, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into(), weight }
    }
}

/// The result of [`inspect`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Inspection {
    /// The make and the version.
    pub version: String,
    /// Its faults.
    pub findings: Vec<Finding>,
    /// Whether there is a store in it.
    pub has_store: bool,
    /// The nodes that work on that.
    pub nodes: Vec<String>,
    /// The time of the database, in milliseconds since the epoch.
    pub time_ms: u64,
    /// How many bytes it takes in one statement, if that is limited.
    pub packet_max: Option<u64>,
}

/// Looks at the database behind `url`, for `doctor`. Changes nothing.
pub async fn inspect(url: &str) -> Result<Inspection, StoreError> {
    let address = Address::parse(url).map_err(|what| StoreError::new(StoreErrorKind::Unavailable, what))?;
    in_time(async {
        Ok(match &address {
            Address::Mysql(to) => mysql::inspect(to).await?,
            Address::Postgres(to) => postgres::inspect(to).await?,
        })
    })
    .await
}

/// Refuses a database that messages are not safe in. Whether it lets us in at all is found out by the way: the pool would only
/// say that nothing came in time.
pub(super) async fn check(address: &Address, options: &Options) -> Result<Safety, StoreError> {
    let found = in_time(async {
        Ok(match address {
            Address::Mysql(to) => mysql::judge(&mysql::collect(&mut mysql::connect(to).await?).await?),
            Address::Postgres(to) => {
                postgres::judge(&postgres::collect(&mut postgres::connect(to).await?).await?)
            }
        })
    });
    let mut safety = Safety::Durable;
    for finding in found.await? {
        let Finding { what, remedy, weight } = finding;
        let allow = match weight {
            Weight::Odd => continue,
            Weight::Volatile if options.allow_volatile => {
                tracing::warn!(finding = what, "server not durable; allowed by allow_volatile");
                safety = Safety::Volatile;
                continue;
            }
            Weight::Volatile => "; or allow it by setting allow_volatile",
            Weight::Unfit => "",
        };
        return Err(StoreError::new(StoreErrorKind::Unavailable, format!("{what}; {remedy}{allow}")));
    }
    Ok(safety)
}

/// Whether what is committed outlives a crash of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Safety {
    Durable,
    Volatile,
}

async fn in_time<T>(looking: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
    match tokio::time::timeout(WITHIN, looking).await {
        Ok(seen) => seen.map_err(why),
        Err(elapsed) => Err(unreachable(&format!("no answer within {WITHIN:?}")).with_source(elapsed)),
    }
}

/// The beginning of a version as numbers to compare: `10.11.6-MariaDB` is (10, 11).
fn numbers(version: &str) -> (u32, u32) {
    let mut numbers =
        version.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn too_old(is: &str, needs: &str) -> Finding {
    let what = format!("this is {is}, and Duly needs {needs} or newer");
    Finding::new(Weight::Unfit, what, "use a newer one")
}

/// Whether this is a name of the time that every zone is measured by.
fn is_utc(zone: &str) -> bool {
    let zone = zone.to_ascii_lowercase();
    let zone = zone.strip_prefix("etc/").unwrap_or(&zone);
    matches!(zone, "utc" | "uct" | "gmt" | "zulu" | "universal" | "greenwich" | "+00:00" | "-00:00" | "+0:00")
        || zone.strip_prefix("gmt").is_some_and(|rest| matches!(rest, "0" | "+0" | "-0"))
}

fn wrong_zone(zone: &str, setting: &str) -> Finding {
    let what = format!(
        "its time zone is {zone}, not UTC: Duly itself goes by none, but create_time and update_time of delay_message are shown in it \
         to people and dashboards that set none of their own"
    );
    Finding::new(
        Weight::Odd,
        what,
        format!("set {setting}, or have whoever reads these columns set the zone of the session"),
    )
}

fn missing(rights: &[&str], remedy: String) -> Option<Finding> {
    if rights.is_empty() {
        return None;
    }
    let what = format!("this user lacks rights that Duly needs: {}", rights.join(", "));
    Some(Finding::new(Weight::Unfit, what, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_numbers() {
        for (version, expected) in [
            ("8.0.36", (8, 0)),
            ("10.11.6-MariaDB-0+deb12u1", (10, 11)),
            ("15.6 (Debian 15.6-0+deb12u1)", (15, 6)),
            ("17beta1", (17, 0)),
            ("", (0, 0)),
        ] {
            assert_eq!(numbers(version), expected, "{version}");
        }
    }

    #[test]
    fn utc_is_known_by_all_its_names_and_nothing_else_is() {
        for zone in ["UTC", "Etc/UTC", "+00:00", "GMT", "Etc/GMT", "Zulu", "GMT0"] {
            assert!(is_utc(zone), "{zone}");
        }
        for zone in ["CST", "Europe/London", "+08:00", "Asia/Shanghai", "Etc/GMT+8", ""] {
            assert!(!is_utc(zone), "{zone}");
        }
    }
}
