//! The file as a tree in which everything knows its place.
//!
//! saphyr-parser's events carry a line and a column, which serde's data model cannot, and every fault
//! needs one, so this tree is what the rest of `config` reads. It keeps words as they are written; what
//! a word means is `leaf`'s. YAML that a configuration does without is refused here: anchors, aliases,
//! merge keys, tags, several documents, keys that are not words. Aliases are never followed, so a small
//! file stays a small tree.

use std::collections::{HashMap, hash_map};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, StrInput};

use super::error::{Fault, Path, Place, Problem};

/// A value and its place.
#[derive(Debug)]
pub struct Node {
    /// Where it begins.
    pub place: Place,
    /// What it is.
    pub value: Value,
}

/// What stands at a place.
#[derive(Debug)]
pub enum Value {
    /// A word.
    Word {
        /// As written, without quotes.
        text: String,
        /// Whether it has none.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A mapping; no key is there twice.
    Mapping(Vec<Entry>),
    /// Something that a fault already tells about.
    Refused,
}

/// A key of a mapping and its value.
#[derive(Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key begins.
    pub place: Place,
    /// Its value.
    pub node: Node,
}

/// The tree of `text`; an empty mapping where there is nothing but comments.
///
/// Faults after which reading can go on are added to `faults`.
///
/// # Errors
/// The fault after which it cannot.
pub fn read(text: &str, faults: &mut Vec<Fault>) -> Result<Node, Fault> {
    let mut reader = Reader {
        text,
        end: end(text),
        parser: Parser::new_from_str(text),
        faults,
    };
    let mut root = Node {
        place: Place { line: 1, column: 1 },
        value: Value::Mapping(Vec::new()),
    };
    let mut documents = 0;
    loop {
        match reader.next(&Path::default())? {
            (Event::StreamEnd, _) => return Ok(root),
            (Event::DocumentStart(_), place) => {
                documents += 1;
                if documents > 1 {
                    return Err(unsupported(place, &Path::default(), DOCUMENTS));
                }
            }
            (Event::StreamStart | Event::DocumentEnd | Event::Nothing, _) => {}
            (event, place) => root = reader.node(event, place, &Path::default(), 0)?,
        }
    }
}

struct Reader<'t, 'f> {
    text: &'t str,
    end: Place,
    parser: Parser<'t, StrInput<'t>>,
    faults: &'f mut Vec<Fault>,
}

impl<'t> Reader<'t, '_> {
    fn next(&mut self, path: &Path) -> Result<(Event<'t>, Place), Fault> {
        match self.parser.next_event() {
            Some(Ok((event, span))) => Ok((event, self.place(&span.start))),
            Some(Err(error)) => Err(self.syntax(&error, path)),
            None => Ok((Event::StreamEnd, Place { line: 1, column: 1 })),
        }
    }

    /// The node that begins with `event`.
    fn node(
        &mut self,
        event: Event<'t>,
        place: Place,
        path: &Path,
        depth: usize,
    ) -> Result<Node, Fault> {
        if depth > DEPTH {
            return Err(unsupported(place, path, NESTING));
        }
        if let Event::Scalar(_, _, anchor, tag) = &event {
            self.refuse_properties(*anchor, tag.is_some(), place, path);
        }
        if let Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) = &event {
            self.refuse_properties(*anchor, tag.is_some(), place, path);
        }
        let value = match event {
            Event::Scalar(text, style, ..) => Value::Word {
                text: text.into_owned(),
                plain: style == ScalarStyle::Plain,
            },
            Event::SequenceStart(..) => Value::List(self.items(path, depth + 1)?),
            Event::MappingStart(..) => Value::Mapping(self.entries(path, depth + 1)?),
            _ => {
                self.faults.push(unsupported(place, path, ANCHORS));
                Value::Refused
            }
        };
        Ok(Node { place, value })
    }

    fn items(&mut self, path: &Path, depth: usize) -> Result<Vec<Node>, Fault> {
        let mut items = Vec::new();
        loop {
            match self.next(path)? {
                (Event::SequenceEnd, _) => return Ok(items),
                (event, place) => {
                    let path = path.item(items.len());
                    items.push(self.node(event, place, &path, depth)?);
                }
            }
        }
    }

    fn entries(&mut self, path: &Path, depth: usize) -> Result<Vec<Entry>, Fault> {
        let mut entries = Vec::new();
        let mut lines = HashMap::new();
        loop {
            let (event, place) = self.next(path)?;
            if event == Event::MappingEnd {
                return Ok(entries);
            }
            let key = self.node(event, place, path, depth)?.value;
            let path = match &key {
                Value::Word { text, .. } => path.key(text),
                _ => path.clone(),
            };
            let (event, value_place) = self.next(&path)?;
            let node = self.node(event, value_place, &path, depth)?;
            match key {
                Value::Word { text, plain: true } if text == "<<" => {
                    self.faults.push(unsupported(place, &path, MERGE));
                }
                Value::Word { text: key, .. } => match lines.entry(key.clone()) {
                    hash_map::Entry::Vacant(line) => {
                        line.insert(place.line);
                        entries.push(Entry { key, place, node });
                    }
                    hash_map::Entry::Occupied(line) => self.faults.push(Fault {
                        place: Some(place),
                        path,
                        problem: Problem::DuplicateKey { first: *line.get() },
                        hint: None,
                    }),
                },
                Value::Refused => {}
                Value::List(_) | Value::Mapping(_) => {
                    self.faults.push(unsupported(place, &path, KEYS));
                }
            }
        }
    }

    fn refuse_properties(&mut self, anchor: usize, tagged: bool, place: Place, path: &Path) {
        if anchor != 0 {
            self.faults.push(unsupported(place, path, ANCHORS));
        }
        if tagged {
            self.faults.push(unsupported(place, path, TAGS));
        }
    }

    /// The parser takes a text for ended on a line of its own, which it may not have.
    fn place(&self, marker: &Marker) -> Place {
        let place = Place {
            line: marker.line(),
            column: marker.col() + 1,
        };
        place.min(self.end)
    }

    fn syntax(&self, error: &ScanError, path: &Path) -> Fault {
        let place = self.place(error.marker());
        // Behind a directive (%) with characters of several bytes it counts those.
        let place = Place {
            column: place.column.min(length(self.text, place.line) + 1),
            ..place
        };
        let line = self
            .text
            .lines()
            .nth(place.line.saturating_sub(1))
            .unwrap_or_default();
        let variable = "between { } or [ ] a value with ${...} stands in quotes";
        let star = "a value that begins with * stands in quotes, as in \"*.example.com\"";
        let tab = "YAML is indented with spaces, and with no tabs";
        let indent = &line[..line.len() - line.trim_start().len()];
        let hint = match () {
            () if indent.contains('\t') => Some(tab),
            () if line.contains("${") => Some(variable),
            () if line.contains("*.") => Some(star),
            () => None,
        };
        Fault {
            place: Some(place),
            path: path.clone(),
            problem: Problem::Syntax(error.info().to_owned()),
            hint: hint.map(str::to_owned),
        }
    }
}

/// Where the byte of this number stands, in lines as editors count them.
pub fn place_of(text: &str, index: usize) -> Place {
    end(&text[..text.floor_char_boundary(index)])
}

/// How many characters a line has, which counts from 1.
fn length(text: &str, line: usize) -> usize {
    let start = match line {
        0 | 1 => 0,
        _ => line_ends(text)
            .nth(line - 2)
            .map_or(text.len(), |end| end + 1),
    };
    let end = line_ends(&text[start..]).next();
    let line = &text[start..end.map_or(text.len(), |end| start + end)];
    line.trim_end_matches('\r').chars().count()
}

/// Where the text ends.
fn end(text: &str) -> Place {
    let last = line_ends(text).next_back().map_or(0, |end| end + 1);
    Place {
        line: line_ends(text).count() + 1,
        column: text[last..].chars().count() + 1,
    }
}

/// Where its lines end. YAML takes a carriage return for a line's end, too.
fn line_ends(text: &str) -> impl DoubleEndedIterator<Item = usize> {
    let is_end = move |(at, byte): &(usize, u8)| {
        *byte == b'\n' || (*byte == b'\r' && text.as_bytes().get(at + 1) != Some(&b'\n'))
    };
    let ends = text.bytes().enumerate().filter(is_end);
    ends.map(|(at, _)| at)
}

fn unsupported(place: Place, path: &Path, what: &'static str) -> Fault {
    Fault {
        place: Some(place),
        path: path.clone(),
        problem: Problem::Unsupported(what),
        hint: None,
    }
}

/// Far more than any setting needs; keeps the recursion above shallow.
const DEPTH: usize = 16;

const ANCHORS: &str = "anchors (&name) and aliases (*name) are";
const TAGS: &str = "tags (!name) are";
const MERGE: &str = "merge keys (<<) are";
const KEYS: &str = "keys that are lists or mappings are";
const DOCUMENTS: &str = "a second document (---) is";
const NESTING: &str = "nesting this deep is";
