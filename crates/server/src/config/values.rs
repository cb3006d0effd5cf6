//! Single values: what they must be, and what is said if they are not.

use std::{fmt::Display, ops::RangeInclusive, time::Duration};

use super::{
    secret::mask_url,
    section::within,
    units::parse_size,
    written::{Node, Value, parse_value},
};

impl Node {
    fn wanted(&self, what: &str) -> String {
        match &self.value {
            Value::Text(text) if !self.hidden => {
                format!("{what} is wanted here; this is {:?}", mask_url(text))
            }
            _ => format!("{what} is wanted here; this is {}", self.kind()),
        }
    }

    pub(super) fn text(&self) -> Result<&str, String> {
        match &self.value {
            Value::Text(text) => Ok(text),
            _ => Err(self.wanted("text in quotes")),
        }
    }

    fn bare(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) if self.is_bare() => Some(text.trim()),
            _ => None,
        }
    }

    pub(super) fn flag(&self) -> Result<bool, String> {
        match (&self.value, self.bare()) {
            (Value::Flag(flag), _) => Ok(*flag),
            (_, Some("true" | "1" | "yes" | "on")) => Ok(true),
            (_, Some("false" | "0" | "no" | "off")) => Ok(false),
            _ => Err(self.wanted("true or false")),
        }
    }

    fn integer(&self) -> Result<i64, String> {
        match (&self.value, self.bare()) {
            (Value::Integer(number), _) => Ok(*number),
            (_, Some(text)) => text.parse().map_err(|_| self.wanted("a whole number")),
            _ => Err(self.wanted("a whole number")),
        }
    }

    pub(super) fn number<N>(&self, range: &RangeInclusive<N>) -> Result<N, String>
    where
        N: TryFrom<i64> + PartialOrd + Display,
    {
        let number = self.integer()?;
        let out =
            || format!("{number} is out of range: it must be from {} to {}", range.start(), range.end());
        N::try_from(number).ok().filter(|number| range.contains(number)).ok_or_else(out)
    }

    /// A part of the whole.
    pub(super) fn fraction(&self) -> Result<f64, String> {
        let number = match (&self.value, self.bare()) {
            (Value::Float(number), _) => *number,
            (Value::Integer(number), _) => *number as f64,
            (_, Some(text)) => text.parse().map_err(|_| self.wanted("a number from 0 to 1"))?,
            _ => return Err(self.wanted("a number from 0 to 1")),
        };
        within(number, &(0.0..=1.0), f64::to_string)
    }

    pub(super) fn span(&self) -> Result<Duration, String> {
        match &self.value {
            Value::Integer(millis) => u64::try_from(*millis)
                .map(Duration::from_millis)
                .map_err(|_| format!("{millis} is negative: a duration is not")),
            Value::Text(text) => duly::parse_delay(text).map_err(|fault| {
                let masked = mask_url(text);
                if masked == *text {
                    fault.detail.replace("delay", "duration")
                } else {
                    self.wanted("a duration")
                }
            }),
            _ => Err(self.wanted("a duration such as \"10s\", or whole milliseconds,")),
        }
    }

    pub(super) fn size(&self) -> Result<usize, String> {
        let bytes = match &self.value {
            Value::Integer(bytes) => {
                u64::try_from(*bytes).map_err(|_| format!("{bytes} is negative: a size is not"))?
            }
            Value::Text(text) => parse_size(text)
                .map_err(|fault| if mask_url(text) == *text { fault } else { self.wanted("a size") })?,
            _ => return Err(self.wanted("a size such as \"1MiB\", or whole bytes,")),
        };
        usize::try_from(bytes).map_err(|_| format!("{bytes} bytes are more than this machine can count"))
    }

    /// A list; from the environment as TOML writes it.
    pub(super) fn list(&self) -> Result<Vec<Node>, String> {
        let read;
        let node = match self.bare() {
            Some(text) => {
                read = parse_value(text, &self.origin);
                read.as_ref().ok_or("a list as TOML writes it is wanted here: [ … ]")?
            }
            None => self,
        };
        match &node.value {
            Value::List(list) => Ok(list.clone()),
            _ if self.is_bare() => Err("a list as TOML writes it is wanted here: [ … ]".into()),
            _ => Err(self.wanted("a list, [ … ],")),
        }
    }

    /// Words: a list of them, or a single one.
    pub(super) fn words(&self) -> Result<Vec<String>, String> {
        match (&self.value, self.bare()) {
            (_, Some(text)) if !text.starts_with('[') => {
                Ok(text.split(',').map(|word| word.trim().to_owned()).collect())
            }
            (Value::Text(text), _) if !self.is_bare() => Ok(vec![text.clone()]),
            _ => self.list()?.iter().map(|node| node.text().map(str::to_owned)).collect(),
        }
    }
}
