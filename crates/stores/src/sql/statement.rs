//! Statements in the words of whichever database it is, and the rows that it answers with.

use sqlx::{
    Arguments, Encode, Postgres, Row as _, Type,
    mysql::{MySqlArguments, MySqlRow},
    postgres::{PgArguments, PgRow},
};

use super::{connection::Dialect, fault::Fault};

/// The values of a statement.
pub(super) enum Values {
    Mysql(MySqlArguments),
    Postgres(PgArguments),
    /// They stand in the text.
    Written,
}

/// A statement being written, with its values.
pub(crate) struct Statement {
    dialect: Dialect,
    pub(super) text: String,
    pub(super) values: Values,
    count: usize,
}

impl Statement {
    pub(crate) fn new(dialect: Dialect, text: &str) -> Self {
        let values = match dialect {
            Dialect::Mysql => Values::Mysql(MySqlArguments::default()),
            Dialect::Postgres => Values::Postgres(PgArguments::default()),
        };
        Self { dialect, text: text.to_owned(), values, count: 0 }
    }

    /// One whose values stand in its text, so that it can go to the server with others.
    pub(crate) fn written(dialect: Dialect, text: &str) -> Self {
        Self { values: Values::Written, ..Self::new(dialect, text) }
    }

    /// More text, in the words of both databases. Never a value of somebody's.
    pub(crate) fn push(&mut self, text: &str) -> &mut Self {
        self.text.push_str(text);
        self
    }

    /// The same thing in the words of each.
    pub(crate) fn push_as(&mut self, mysql: &str, postgres: &str) -> &mut Self {
        self.push(match self.dialect {
            Dialect::Mysql => mysql,
            Dialect::Postgres => postgres,
        })
    }

    /// A value.
    pub(crate) fn bind<'v>(&mut self, value: impl Into<Value<'v>>) -> &mut Self {
        let value = value.into();
        if let Values::Written = self.values {
            self.text.push_str(&value.literal(self.dialect));
            return self;
        }
        self.name_next();
        // These kinds of values can always be written; a list that were one short would be refused by the server.
        let _ = match &mut self.values {
            Values::Mysql(values) => match value {
                Value::Int(value) => values.add(value),
                Value::Text(value) => values.add(value),
                Value::Bytes(value) => values.add(value),
            },
            Values::Postgres(values) => match value {
                Value::Int(value) => values.add(value),
                Value::Text(value) => values.add(value),
                Value::Bytes(value) => values.add(value),
            },
            Values::Written => Ok(()),
        };
        self
    }

    /// Whether many values may go as [one](Self::bind_array).
    pub(super) fn takes_arrays(&self) -> bool {
        matches!(self.values, Values::Postgres(_))
    }

    /// Many values of one kind as a single one: PostgreSQL only.
    pub(crate) fn bind_array<'a, T>(&mut self, array: T) -> &mut Self
    where
        T: Encode<'a, Postgres> + Type<Postgres>,
    {
        self.name_next();
        if let Values::Postgres(values) = &mut self.values {
            let _ = values.add(array);
        }
        self
    }

    fn name_next(&mut self) {
        self.count += 1;
        match self.dialect {
            Dialect::Mysql => self.text.push('?'),
            Dialect::Postgres => self.text.push_str(&format!("${}", self.count)),
        }
    }

    /// Values with commas between them.
    pub(crate) fn bind_all<'v>(
        &mut self,
        values: impl IntoIterator<Item = impl Into<Value<'v>>>,
    ) -> &mut Self {
        for (index, value) in values.into_iter().enumerate() {
            if index > 0 {
                self.push(", ");
            }
            self.bind(value);
        }
        self
    }
}

/// A value of a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'v> {
    Int(Option<i64>),
    Text(Option<&'v str>),
    Bytes(Option<&'v [u8]>),
}

impl Value<'_> {
    /// As it stands in a text, whatever is in it.
    fn literal(self, dialect: Dialect) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        match (self, dialect) {
            (Self::Int(Some(value)), _) => value.to_string(),
            (Self::Text(Some(text)), _) if is_plain(text) => format!("'{text}'"),
            // Whether a backslash means anything between quotes is a setting of the server.
            (Self::Text(Some(text)), Dialect::Mysql) => format!("_utf8mb4 x'{}'", hex(text.as_bytes())),
            (Self::Text(Some(text)), Dialect::Postgres) => {
                format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
            }
            (Self::Bytes(Some(bytes)), Dialect::Mysql) => format!("x'{}'", hex(bytes)),
            (Self::Bytes(Some(bytes)), Dialect::Postgres) => format!("E'\\\\x{}'", hex(bytes)),
            (Self::Int(None) | Self::Text(None) | Self::Bytes(None), _) => "NULL".to_owned(),
        }
    }
}

/// Nothing in it means anything to a database.
fn is_plain(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-'))
}

impl From<i64> for Value<'_> {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<Option<i64>> for Value<'_> {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

impl<'v> From<&'v str> for Value<'v> {
    fn from(value: &'v str) -> Self {
        Self::Text(Some(value))
    }
}

impl<'v> From<Option<&'v str>> for Value<'v> {
    fn from(value: Option<&'v str>) -> Self {
        Self::Text(value)
    }
}

impl<'v> From<&'v [u8]> for Value<'v> {
    fn from(value: &'v [u8]) -> Self {
        Self::Bytes(Some(value))
    }
}

impl<'v> From<Option<&'v [u8]>> for Value<'v> {
    fn from(value: Option<&'v [u8]>) -> Self {
        Self::Bytes(value)
    }
}

/// The result of one of several statements.
#[derive(Default)]
pub(crate) struct StatementResult {
    pub(crate) rows: Vec<ServerRow>,
    /// How many rows it touched.
    pub(crate) touched: u64,
}

/// One row of an answer.
pub(crate) enum ServerRow {
    Mysql(MySqlRow),
    Postgres(PgRow),
}

macro_rules! column {
    ($(#[$doc:meta])* $name:ident, $type:ty) => {
        $(#[$doc])*
        pub(crate) fn $name(&self, column: usize) -> Result<Option<$type>, Fault> {
            Ok(match self {
                Self::Mysql(row) => row.try_get_unchecked(column)?,
                Self::Postgres(row) => row.try_get_unchecked(column)?,
            })
        }
    };
}

impl ServerRow {
    column!(
        /// A whole number.
        maybe_int,
        i64
    );
    column!(
        /// Text.
        maybe_text,
        String
    );
    column!(
        /// Bytes.
        maybe_bytes,
        Vec<u8>
    );

    pub(crate) fn int(&self, column: usize) -> Result<i64, Fault> {
        self.maybe_int(column)?.ok_or_else(|| Fault::garbled("a number that is not there"))
    }

    pub(crate) fn text(&self, column: usize) -> Result<String, Fault> {
        self.maybe_text(column)?.ok_or_else(|| Fault::garbled("a text that is not there"))
    }

    pub(crate) fn bytes(&self, column: usize) -> Result<Vec<u8>, Fault> {
        self.maybe_bytes(column)?.ok_or_else(|| Fault::garbled("bytes that are not there"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_text_means_nothing_but_itself() {
        let text = |text| Value::from(text);
        assert_eq!(text("a-1.b:c_D").literal(Dialect::Mysql), "'a-1.b:c_D'");
        assert_eq!(text("a'b\\").literal(Dialect::Mysql), "_utf8mb4 x'6127625c'");
        assert_eq!(text("a'b\\").literal(Dialect::Postgres), "E'a\\'b\\\\'");
        assert_eq!(Value::from(None::<&str>).literal(Dialect::Postgres), "NULL");
        assert_eq!(Value::from(-7).literal(Dialect::Mysql), "-7");
        assert_eq!(Value::from(&b"\x00'"[..]).literal(Dialect::Mysql), "x'0027'");
        assert_eq!(Value::from(&b"\x00'"[..]).literal(Dialect::Postgres), "E'\\\\x0027'");
    }
}
