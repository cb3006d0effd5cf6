//! Splits a stream of bytes into items: lines of NDJSON, or elements of a JSON array.

use bytes::{Buf, Bytes, BytesMut};

/// The format of the stream. The first character decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON value a line.
    Lines,
    /// `[`, values with commas between, `]`.
    Array,
}

/// Blank bytes between two items at most. Nobody writes as many, and a stream of nothing else would have no end.
pub(super) const BLANKS_MAX: usize = 64 << 10;

/// Why a stream cannot be split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// One item has more bytes than the limit.
    TooLong,
    /// More than [`BLANKS_MAX`] blank bytes before an item.
    Blank,
    /// Something other than an item, a comma or the end.
    NotAnArray,
    /// It ended in the middle of an item or of the array.
    Half,
}

/// The position of the splitter in an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArrayState {
    /// Before the first item or the end.
    Open,
    /// After a comma.
    Comma,
    /// Within an item.
    Item { depth: usize, quoted: bool, escaped: bool },
    /// After the end.
    Closed,
}

/// Takes bytes as they arrive, returns complete items.
#[derive(Debug)]
pub(super) struct Items {
    buffer: BytesMut,
    /// Bytes of the buffer that were scanned already.
    seen: usize,
    form: Option<Form>,
    state: ArrayState,
    max: usize,
    /// Blank bytes since the last item.
    blanks: usize,
    blanks_max: usize,
}

impl Items {
    /// Items of at most `max` bytes.
    pub(super) fn new(max: usize) -> Self {
        let (buffer, state) = (BytesMut::new(), ArrayState::Open);
        Self { buffer, seen: 0, form: None, state, max, blanks: 0, blanks_max: BLANKS_MAX }
    }

    /// The format; unknown before the first character.
    pub(super) fn form(&self) -> Option<Form> {
        self.form
    }

    /// Bytes buffered for the next item.
    pub(super) fn held(&self) -> usize {
        self.buffer.len()
    }

    /// Appends bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        if self.form.is_none() {
            self.begin();
        }
    }

    fn begin(&mut self) {
        let Some(first) = self.buffer.iter().position(|byte| !byte.is_ascii_whitespace()) else {
            self.blanks += self.buffer.len();
            self.buffer.clear();
            return;
        };
        self.blanks += first;
        let array = self.buffer[first] == b'[';
        self.buffer.advance(first + usize::from(array));
        self.form = Some(if array { Form::Array } else { Form::Lines });
    }

    /// The next complete item.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        self.check_blanks()?;
        let item = match self.form() {
            Some(Form::Lines) => self.line()?,
            Some(Form::Array) => self.element()?,
            None => None,
        };
        if item.is_some() {
            self.blanks = 0;
        }
        let longest = item.as_ref().map_or(self.buffer.len(), Bytes::len);
        if longest > self.max { Err(Broken::TooLong) } else { Ok(item) }
    }

    /// Fails if there were too many blank bytes since the last item.
    pub(super) fn check_blanks(&self) -> Result<(), Broken> {
        if self.blanks > self.blanks_max { Err(Broken::Blank) } else { Ok(()) }
    }

    /// The last item, once no more bytes come.
    pub(super) fn end(&mut self) -> Result<Option<Bytes>, Broken> {
        match self.form() {
            None => Ok(None),
            Some(Form::Lines) => {
                let rest = self.buffer.split().freeze();
                self.seen = 0;
                let blank = rest.iter().all(u8::is_ascii_whitespace);
                Ok((!blank).then_some(rest))
            }
            Some(Form::Array) if self.state == ArrayState::Closed => Ok(None),
            Some(Form::Array) => Err(Broken::Half),
        }
    }

    fn line(&mut self) -> Result<Option<Bytes>, Broken> {
        loop {
            let Some(end) = memchr::memchr(b'\n', &self.buffer[self.seen..]) else {
                self.seen = self.buffer.len();
                return Ok(None);
            };
            let line = self.buffer.split_to(self.seen + end).freeze();
            self.buffer.advance(1);
            self.seen = 0;
            if !line.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some(line));
            }
            self.blanks += line.len() + 1;
            self.check_blanks()?;
        }
    }

    fn element(&mut self) -> Result<Option<Bytes>, Broken> {
        while let Some(&byte) = self.buffer.get(self.seen) {
            self.seen += 1;
            let blank = byte.is_ascii_whitespace();
            match &mut self.state {
                ArrayState::Item { depth, quoted, escaped } => {
                    if *quoted {
                        *quoted = *escaped || byte != b'"';
                        *escaped = !*escaped && byte == b'\\';
                        continue;
                    }
                    match byte {
                        b'"' => *quoted = true,
                        b'{' | b'[' => *depth += 1,
                        b'}' | b']' if *depth > 0 => *depth -= 1,
                        b',' | b']' if *depth == 0 => {
                            self.state = if byte == b',' { ArrayState::Comma } else { ArrayState::Closed };
                            let item = self.buffer.split_to(self.seen - 1).freeze();
                            self.buffer.advance(1);
                            self.seen = 0;
                            return Ok(Some(item));
                        }
                        _ => {}
                    }
                }
                _ if blank => {
                    self.blanks += self.seen;
                    self.drop_seen();
                    self.check_blanks()?;
                }
                ArrayState::Open if byte == b']' => {
                    self.state = ArrayState::Closed;
                    self.drop_seen();
                }
                ArrayState::Open | ArrayState::Comma if !matches!(byte, b',' | b']') => {
                    // This byte begins the item: handle it again in that state.
                    self.seen -= 1;
                    self.state = ArrayState::Item { depth: 0, quoted: false, escaped: false };
                }
                _ => return Err(Broken::NotAnArray),
            }
        }
        Ok(None)
    }

    fn drop_seen(&mut self) {
        self.buffer.advance(self.seen);
        self.seen = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits `text` fed in chunks of every size: chunk boundaries must not matter.
    fn split(text: &str) -> Result<Vec<String>, Broken> {
        let results: Vec<_> = (1..=text.len().max(1)).map(|size| pieces(text, size)).collect();
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{text}: {results:?}");
        results.into_iter().next().unwrap()
    }

    fn pieces(text: &str, size: usize) -> Result<Vec<String>, Broken> {
        let mut items = Items { blanks_max: 10, ..Items::new(40) };
        let mut found = Vec::new();
        let mut keep = |item: Bytes| found.push(String::from_utf8(item.to_vec()).unwrap().trim().to_owned());
        for piece in text.as_bytes().chunks(size) {
            items.push(piece);
            while let Some(item) = items.next()? {
                keep(item);
            }
        }
        items.end()?.into_iter().for_each(&mut keep);
        Ok(found)
    }

    #[test]
    fn lines_and_arrays_come_apart_wherever_the_pieces_end() {
        assert_eq!(split("{\"a\":1}\n\r\n {\"b\":\"\\n\"}").unwrap(), ["{\"a\":1}", "{\"b\":\"\\n\"}"]);
        assert_eq!(
            split(" [ {\"a\":[1,2]} ,\"x,]\\\"\", 3 ]\n").unwrap(),
            ["{\"a\":[1,2]}", "\"x,]\\\"\"", "3"]
        );
        assert_eq!(split("[]").unwrap(), Vec::<String>::new());
        assert_eq!(split("  ").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn blanks_are_bounded_wherever_they_are() {
        let (few, many) = ("\n".repeat(10), " \n".repeat(6));
        assert_eq!(split(&format!("{few}1\n{few}2\n{few}")).unwrap(), ["1", "2"]);
        assert_eq!(split(&format!("{few}[{few}").replace("\n\n", "\n")), Err(Broken::Half));
        for text in [many.clone(), format!("1\n{many}2"), format!("1\n{many}"), format!("[1]{many}")] {
            assert_eq!(split(&text), Err(Broken::Blank), "{text:?}");
        }
        for text in ["{many}1", "[{many}1]", "[1,{many}2]"] {
            assert_eq!(split(&text.replace("{many}", &many)), Err(Broken::Blank), "{text}");
        }
        let within = format!("[{{\"a\":{}1}}]", " ".repeat(20));
        assert_eq!(split(&within).unwrap().len(), 1, "those within an item count as its bytes");
    }

    #[test]
    fn what_is_no_array_is_said_so() {
        assert_eq!(split("[1,]"), Err(Broken::NotAnArray));
        assert_eq!(split("[1] 2"), Err(Broken::NotAnArray));
        assert_eq!(split("[1,2"), Err(Broken::Half));
        assert_eq!(split(&format!("[\"{}\"]", "x".repeat(50))), Err(Broken::TooLong));
        assert_eq!(split(&"y".repeat(50)), Err(Broken::TooLong));
    }
}
