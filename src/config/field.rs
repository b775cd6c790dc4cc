//! One value of the file, read as a word, a list or a mapping; what does not fit becomes a fault.
//!
//! The only place where a value gets into a fault, and so the only one that keeps secrets out of them.

use super::{
    error::{Path, Problem, quoted},
    leaf::Rejected,
    section::{Reading, Section},
    substitute::{VariableError, substitute},
    tree::{Node, Value},
    values::Told,
};

/// A value that is about to be read.
pub struct Field<'a> {
    node: &'a Node,
    path: Path,
    reading: &'a Reading<'a>,
}

impl<'a> Field<'a> {
    /// The value at `node`, which is the setting `path`.
    pub fn new(node: &'a Node, path: Path, reading: &'a Reading<'a>) -> Self {
        Self {
            node,
            path,
            reading,
        }
    }

    /// Whether it is a list, for a setting that may be a list or something else.
    pub fn is_list(&self) -> bool {
        matches!(self.node.value, Value::List(_))
    }

    /// Whether it is a single value, for a setting that may be one or something else. A key with nothing after it is
    /// none, but an empty mapping.
    pub fn is_word(&self) -> bool {
        matches!(&self.node.value, Value::Word { text, plain } if !(*plain && text.is_empty()))
    }

    /// Whether it is a list of nothing.
    pub fn is_empty_list(&self) -> bool {
        matches!(&self.node.value, Value::List(items) if items.is_empty())
    }

    /// Reads it as a word.
    pub fn word<T, E>(self, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<T>
    where
        Rejected: From<E>,
    {
        self.read(Shown::Yes, str::to_owned, parse)
    }

    /// Reads it as a word, of which only what `tell` leaves is shown where the configuration is.
    pub fn word_told<T, E>(
        self,
        tell: fn(&str) -> String,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T>
    where
        Rejected: From<E>,
    {
        self.read(Shown::Yes, tell, parse)
    }

    /// Reads it as a word that is never shown in a fault.
    pub fn secret<T, E>(self, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<T>
    where
        Rejected: From<E>,
    {
        self.read(Shown::No, str::to_owned, parse)
    }

    /// Reads it as a mapping. A key with nothing after it is an empty one.
    pub fn section<T>(self, read: impl FnOnce(&mut Section<'a>) -> T) -> Option<T> {
        let entries = match &self.node.value {
            Value::Mapping(entries) => entries.as_slice(),
            Value::Word { text, plain: true } if text.is_empty() => &[],
            _ => return self.found(Shown::No, "a mapping of keys to values", None),
        };
        Some(Section::of(entries, self.node.place, self.path, self.reading).read(read))
    }

    /// Reads it as a mapping of at least one key that is free to choose; faulty entries are left out.
    pub fn mapping<T>(
        self,
        example: &str,
        mut read: impl FnMut(&str, Field<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        match &self.node.value {
            Value::Mapping(entries) if !entries.is_empty() => {
                let fields = entries.iter().map(|entry| {
                    let path = self.path.key(&entry.key);
                    (&*entry.key, Self::new(&entry.node, path, self.reading))
                });
                let read = fields.filter_map(|(key, field)| read(key, field));
                Some(read.collect())
            }
            _ => self.found(
                Shown::No,
                &format!("a mapping of at least one, as in {example}"),
                None,
            ),
        }
    }

    /// Adds a fault of a value that is well formed and does not go with others.
    pub fn conflict(&self, problem: impl Into<String>) {
        self.fault(Problem::Conflict(problem.into()), None);
    }

    /// Reads it as a list of at least one item; faulty items are left out.
    pub fn list<T>(
        self,
        example: &str,
        read: impl FnMut(Field<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.items(Shown::Yes, example, read)
    }

    /// The same of items that are secrets: a lone one in the place of the list is not shown either.
    pub fn secrets<T>(
        self,
        example: &str,
        read: impl FnMut(Field<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.items(Shown::No, example, read)
    }

    fn items<T>(
        self,
        shown: Shown,
        example: &str,
        mut read: impl FnMut(Field<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let accepted = format!("a list of at least one, as in {example}");
        match &self.node.value {
            Value::List(nodes) if !nodes.is_empty() => {
                let fields = nodes.iter().enumerate().map(|(index, node)| Field {
                    node,
                    path: self.path.item(index),
                    reading: self.reading,
                });
                Some(fields.filter_map(&mut read).collect())
            }
            Value::Mapping(_) => {
                let hint = "begin each item with a -, and write what names it into the item";
                self.found(shown, &accepted, Some(hint.to_owned()))
            }
            _ => self.found(shown, &accepted, None),
        }
    }

    fn read<T, E>(
        self,
        shown: Shown,
        tell: fn(&str) -> String,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T>
    where
        Rejected: From<E>,
    {
        let Value::Word { text, plain } = &self.node.value else {
            return self.found(shown, "a single value", None);
        };
        if *plain && NOTHING.contains(&text.as_str()) {
            let hint = "an optional key is left out to get its default";
            return self.found(shown, "a value", Some(hint.to_owned()));
        }
        let written = text;
        let substituted = match substitute(written, self.reading.env, self.reading.files) {
            Ok(substituted) => substituted,
            Err(error) => {
                if let VariableError::File { path, .. } = &error {
                    self.reading.note_files(vec![path.as_ref().into()]);
                }
                self.fault(error.into(), None);
                return None;
            }
        };
        let text = substituted.text;
        // A file is written into a value to keep it secret, so neither it nor what a hint would make of it is
        // shown, whatever the key.
        let secret = !substituted.files.is_empty();
        self.reading.note_files(substituted.files);
        let hidden = secret || matches!(shown, Shown::No) || has_userinfo(&text);
        let visible = tell(&text);
        let told = match hidden {
            true => Told::Secret,
            false => Told::Text(visible.as_str().into()),
        };
        self.reading.value(&self.path, &text, told);
        match parse(&text).map_err(Rejected::from) {
            Ok(value) => Some(value),
            Err(rejected) => {
                let found = match text == *written {
                    _ if hidden => "a value (not shown, it may hold a secret)".to_owned(),
                    true => quoted(&visible),
                    false => format!("{} from {}", quoted(&visible), quoted(&tell(written))),
                };
                let told = text.len() >= TELLING && rejected.accepted.contains(&*text);
                let accepted = match secret && told {
                    true => "it is not accepted here".to_owned(),
                    false => rejected.accepted,
                };
                let hint = rejected.hint.filter(|_| !secret);
                self.fault(Problem::Found { found, accepted }, hint);
                None
            }
        }
    }

    /// Adds a fault about a value of another kind.
    fn found<T>(&self, shown: Shown, accepted: &str, hint: Option<String>) -> Option<T> {
        let found = match (&self.node.value, shown) {
            (Value::Refused, _) => return None,
            (Value::List(items), _) if items.is_empty() => "an empty list".to_owned(),
            (Value::List(_), _) => "a list".to_owned(),
            (Value::Mapping(entries), _) if entries.is_empty() => "an empty mapping".to_owned(),
            (Value::Mapping(_), _) => "a mapping".to_owned(),
            (Value::Word { text, plain: true }, _) if NOTHING.contains(&text.as_str()) => {
                "nothing".to_owned()
            }
            (Value::Word { text, .. }, Shown::Yes) if !has_userinfo(text) => quoted(text),
            (Value::Word { .. }, _) => "a single value".to_owned(),
        };
        let accepted = format!("expected {accepted}");
        self.fault(Problem::Found { found, accepted }, hint);
        None
    }

    fn fault(&self, problem: Problem, hint: Option<String>) {
        self.reading
            .fault(self.node.place, self.path.clone(), problem, hint);
    }
}

/// Whether a value may stand in a fault.
#[derive(Clone, Copy)]
enum Shown {
    Yes,
    No,
}

/// Whether it looks like a URL with a name and a password, which is never shown, whatever the key.
fn has_userinfo(text: &str) -> bool {
    text.contains("://") && text.contains('@')
}

/// From how many bytes on a text that is in a message is there because it was put there.
const TELLING: usize = 3;

/// How YAML writes that there is no value.
const NOTHING: [&str; 5] = ["", "~", "null", "Null", "NULL"];
