//! Reads settings out of the tree and collects every fault on the way.
//!
//! A key is known because something reads it: what nobody asked for when a mapping has been read is an
//! unknown key, and the keys that were asked for are the ones listed. So no key can be accepted and
//! have no effect. What a word means is `leaf`'s and the components' own `FromStr`.

use std::cell::RefCell;

use super::{
    error::{Fault, Path, Place, Problem, quoted},
    leaf::{Rejected, nearest},
    substitute::{Environment, substitute},
    tree::{Entry, Node, Value},
};

/// What is shared while one file is read.
pub struct Reading<'a> {
    env: &'a Environment<'a>,
    faults: RefCell<Vec<Fault>>,
}

impl<'a> Reading<'a> {
    /// Begins with the `faults` that the tree has.
    pub fn new(env: &'a Environment<'a>, faults: Vec<Fault>) -> Self {
        Self {
            env,
            faults: RefCell::new(faults),
        }
    }

    /// Reads the mapping that a file is. `None` if it is none.
    pub fn root<T>(&self, node: &Node, read: impl FnOnce(&mut Section<'_>) -> T) -> Option<T> {
        let path = Path::default();
        Field {
            node,
            path,
            reading: self,
        }
        .section(read)
    }

    /// Every fault, in the order of the file.
    pub fn into_faults(self) -> Vec<Fault> {
        let mut faults = self.faults.into_inner();
        faults.sort_by_key(|fault| fault.place);
        faults
    }

    fn fault(&self, place: Place, path: Path, problem: Problem, hint: Option<String>) {
        self.faults.borrow_mut().push(Fault {
            place: Some(place),
            path,
            problem,
            hint,
        });
    }
}

/// A mapping that is being read.
pub struct Section<'a> {
    entries: &'a [Entry],
    place: Place,
    path: Path,
    known: Vec<&'static str>,
    reading: &'a Reading<'a>,
}

impl<'a> Section<'a> {
    /// The value of `key`, or `default` if it is absent or at fault.
    pub fn word<T, E>(
        &mut self,
        key: &'static str,
        default: T,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> T
    where
        Rejected: From<E>,
    {
        self.optional(key, parse).unwrap_or(default)
    }

    /// The value of `key`; `None` if it is absent or at fault.
    pub fn optional<T, E>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T>
    where
        Rejected: From<E>,
    {
        self.field(key)?.word(parse)
    }

    /// The value of `key`, which is never shown in a fault; `None` if it is absent or at fault.
    pub fn secret<T, E>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T>
    where
        Rejected: From<E>,
    {
        self.field(key)?.read(Shown::No, parse)
    }

    /// Reads the mapping at `key`: an empty one if it is absent, so that every default applies.
    pub fn section<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Section<'a>) -> T,
    ) -> Option<T> {
        let path = self.path.key(key);
        match self.field(key) {
            Some(field) => field.section(read),
            None => Some(Section::of(&[], self.place, path, self.reading).read(read)),
        }
    }

    /// The list at `key` without its faulty items; `None` if it is absent, empty or no list.
    pub fn list<T>(
        &mut self,
        key: &'static str,
        example: &'static str,
        read: impl FnMut(Field<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.field(key)?.list(example, read)
    }

    /// Whether `key` is there.
    pub fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|entry| entry.key == key)
    }

    /// Adds a fault if `key` is absent.
    pub fn require(&mut self, key: &'static str, example: &'static str) {
        if !self.has(key) {
            let problem = Problem::Missing { example };
            let path = self.path.key(key);
            self.reading.fault(self.place, path, problem, None);
        }
    }

    /// Adds a fault of a value that is well formed and does not go with others.
    pub fn conflict(&self, key: &str, problem: impl Into<String>, hint: Option<&str>) {
        let entry = self.entries.iter().find(|entry| entry.key == key);
        let place = entry.map_or(self.place, |entry| entry.node.place);
        let problem = Problem::Conflict(problem.into());
        let hint = hint.map(str::to_owned);
        self.reading.fault(place, self.path.key(key), problem, hint);
    }

    /// Which setting this is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn of(entries: &'a [Entry], place: Place, path: Path, reading: &'a Reading<'a>) -> Self {
        Self {
            entries,
            place,
            path,
            known: Vec::new(),
            reading,
        }
    }

    fn read<T>(mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let value = read(&mut self);
        for entry in self.entries {
            if !self.known.contains(&entry.key.as_str()) {
                let problem = Problem::UnknownKey {
                    known: self.known.clone(),
                };
                let hint = nearest(&entry.key, self.known.iter().copied());
                let path = self.path.key(&entry.key);
                self.reading.fault(entry.place, path, problem, hint);
            }
        }
        value
    }

    fn field(&mut self, key: &'static str) -> Option<Field<'a>> {
        self.known.push(key);
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(Field {
            node: &entry.node,
            path: self.path.key(key),
            reading: self.reading,
        })
    }
}

/// A value that is about to be read.
pub struct Field<'a> {
    node: &'a Node,
    path: Path,
    reading: &'a Reading<'a>,
}

impl<'a> Field<'a> {
    /// Reads it as a word.
    pub fn word<T, E>(self, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<T>
    where
        Rejected: From<E>,
    {
        self.read(Shown::Yes, parse)
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

    /// Reads it as a list of at least one item; faulty items are left out.
    pub fn list<T>(
        self,
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
            _ => self.found(Shown::Yes, &accepted, None),
        }
    }

    fn read<T, E>(self, shown: Shown, parse: impl FnOnce(&str) -> Result<T, E>) -> Option<T>
    where
        Rejected: From<E>,
    {
        let Value::Word { text, plain } = &self.node.value else {
            return self.found(shown, "one value", None);
        };
        if *plain && NOTHING.contains(&text.as_str()) {
            let hint = "leave the key out to get the default, or write \"\" for an empty text";
            return self.found(shown, "a value", Some(hint.to_owned()));
        }
        let text = match substitute(text, self.reading.env) {
            Ok(text) => text,
            Err(error) => {
                self.fault(error.into(), None);
                return None;
            }
        };
        match parse(&text).map_err(Rejected::from) {
            Ok(value) => Some(value),
            Err(rejected) => {
                let found = match shown {
                    Shown::Yes => quoted(&text),
                    Shown::No => "a value (not shown, it may hold a secret)".to_owned(),
                };
                let accepted = rejected.accepted;
                self.fault(Problem::Found { found, accepted }, rejected.hint);
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
            (Value::Mapping(_), _) => "a mapping".to_owned(),
            (Value::Word { text, plain: true }, _) if NOTHING.contains(&text.as_str()) => {
                "nothing".to_owned()
            }
            (Value::Word { text, .. }, Shown::Yes) => quoted(text),
            (Value::Word { .. }, Shown::No) => "a single value".to_owned(),
        };
        let accepted = format!("what stands here is {accepted}");
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

/// How YAML writes that there is no value.
const NOTHING: [&str; 5] = ["", "~", "null", "Null", "NULL"];
