//! Bytes in lines: unzipped where they are zipped, and never more of a line than its bound.

use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};

use flate2::bufread::MultiGzDecoder;

/// The longest line that is read, in bytes; a longer one is skipped, and counted.
pub const LONGEST_LINE: usize = 64 * 1024;

/// The lines of a log.
pub(super) struct Lines<'r> {
    bytes: Box<dyn BufRead + 'r>,
    is_zipped: bool,
    line: Vec<u8>,
}

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'l> {
    /// Without its end.
    Whole(&'l [u8]),
    /// The beginning of one that is too long.
    TooLong(&'l [u8]),
    /// What it would be in is broken; no other follows.
    Broken,
}

impl<'r> Lines<'r> {
    /// Those of `bytes`, zipped or not.
    pub fn new(mut bytes: impl Read + 'r) -> io::Result<Self> {
        let mut magic = Vec::new();
        bytes
            .by_ref()
            .take(GZIP.len() as u64)
            .read_to_end(&mut magic)?;
        let is_zipped = magic == GZIP;
        let bytes = BufReader::with_capacity(BUFFER, Cursor::new(magic).chain(bytes));
        Ok(Self {
            bytes: match is_zipped {
                true => Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(bytes))),
                false => Box::new(bytes),
            },
            is_zipped,
            line: Vec::new(),
        })
    }

    /// The next one; `None` at the end.
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        match self.read() {
            Ok(false) => Ok(None),
            Ok(true) => {
                let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
                Ok(Some(match line.len() {
                    ..=LONGEST_LINE => Line::Whole(line),
                    _ => Line::TooLong(line),
                }))
            }
            Err(error) if self.is_zipped && is_of_what_is_zipped(&error) => {
                self.bytes = Box::new(io::empty());
                Ok(Some(Line::Broken))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether there was another, which is in `line`; its end is not.
    fn read(&mut self) -> io::Result<bool> {
        self.line.clear();
        let most = LONGEST_LINE as u64 + b"\r\n".len() as u64;
        let read = (&mut self.bytes)
            .take(most)
            .read_until(b'\n', &mut self.line)?;
        if self.line.pop_if(|last| *last == b'\n').is_none() && read as u64 == most {
            self.bytes.skip_until(b'\n')?;
        }
        Ok(read > 0)
    }
}

/// Whether bytes begin as a gzip stream does.
pub(super) fn begins_zipped(bytes: &[u8]) -> bool {
    // With the only method there is.
    bytes.starts_with(&[GZIP[0], GZIP[1], 8])
}

fn is_of_what_is_zipped(error: &io::Error) -> bool {
    use ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    matches!(error.kind(), InvalidData | InvalidInput | UnexpectedEof)
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
const BUFFER: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn zipped(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).expect("in memory");
        encoder.finish().expect("in memory")
    }

    /// Whole ones as they are, others as a word.
    fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(bytes).expect("in memory");
        let mut found = Vec::new();
        while let Some(line) = lines.next().expect("in memory") {
            found.push(match line {
                Line::Whole(line) => line.to_vec(),
                Line::TooLong(line) => format!("too long: {}", line.len()).into_bytes(),
                Line::Broken => b"broken".to_vec(),
            });
        }
        found
    }

    #[test]
    fn a_line_ends_with_or_without_a_carriage_return_and_the_last_one_with_nothing() {
        assert_eq!(
            lines(b"a\r\nb\n\nc\r\r\nd"),
            [&b"a"[..], b"b", b"", b"c\r", b"d"]
        );
        assert_eq!(lines(b""), [b""; 0]);
        assert_eq!(lines(b"x"), [b"x"]);
        assert_eq!(lines(b"\n"), [b""]);
        assert_eq!(lines(b"\x1f\n"), [b"\x1f"], "half of a magic is none");
    }

    #[test]
    fn a_line_of_64_kib_is_read_and_a_longer_one_skipped_without_being_held() {
        let line = |length, end: &str| [&vec![b'a'; length][..], end.as_bytes()].concat();
        for end in ["\n", "\r\n", ""] {
            let read = lines(&line(LONGEST_LINE, end));
            let lengths: Vec<_> = read.iter().map(Vec::len).collect();
            assert_eq!(lengths, [LONGEST_LINE], "{end:?}");
        }
        for length in [
            LONGEST_LINE + 1,
            LONGEST_LINE + 2,
            LONGEST_LINE + 3,
            1_000_000,
        ] {
            let read = lines(&[line(length, "\n"), b"b\n".to_vec()].concat());
            assert_eq!(read.len(), 2, "{length}");
            assert!(read[0].starts_with(b"too long: 6"), "{length}");
            assert!(read[1] == b"b", "{length}");
        }
    }

    #[test]
    fn gzip_is_found_by_its_first_bytes_and_read_over_all_its_members() {
        let members = [
            zipped(b"a\nb"),
            zipped(b"c\r\n"),
            zipped(b""),
            zipped(b"d\n"),
        ]
        .concat();
        assert_eq!(lines(&members), [&b"a"[..], b"bc", b"d"]);
    }

    #[test]
    fn where_gzip_breaks_the_lines_before_are_read_and_one_tells_of_it() {
        let whole = zipped(&b"line\n".repeat(100_000));
        let read = lines(&whole[..whole.len() / 2]);
        assert!(read.len() > 10, "{}", read.len());
        assert_eq!(read.last().map(Vec::as_slice), Some(&b"broken"[..]));
        let followed = [zipped(b"a\n"), b"plain\n".to_vec()].concat();
        assert_eq!(lines(&followed), [&b"a"[..], b"broken"]);
    }
}
