//! Reads settings out of the tree and collects every fault on the way.
//!
//! A key is known because something reads it: what nobody asked for when a mapping has been read is an
//! unknown key, and the keys that were asked for are the ones listed. So no key can be accepted and
//! have no effect. What a word means is `leaf`'s and the components' own `FromStr`.

use std::{cell::RefCell, path};

use super::{
    error::{Fault, Path, Place, Problem},
    field::Field,
    leaf::{Rejected, nearest},
    substitute::{Environment, Files},
    tree::{Entry, Node},
    values::{Told, Values},
};

/// What is shared while one file is read.
pub struct Reading<'a> {
    pub(super) env: &'a Environment<'a>,
    pub(super) files: &'a Files<'a>,
    /// The files that went into values, each once.
    substituted: RefCell<Vec<path::PathBuf>>,
    named_files: NamedFiles,
    faults: RefCell<Vec<Fault>>,
    values: RefCell<Values>,
}

impl<'a> Reading<'a> {
    /// Begins with the `faults` that the tree has.
    pub fn new(
        env: &'a Environment<'a>,
        files: &'a Files<'a>,
        named_files: NamedFiles,
        faults: Vec<Fault>,
    ) -> Self {
        Self {
            env,
            files,
            substituted: RefCell::default(),
            named_files,
            faults: RefCell::new(faults),
            values: RefCell::default(),
        }
    }

    /// Reads the mapping that a file is. `None` if it is none.
    pub fn root<T>(&self, node: &Node, read: impl FnOnce(&mut Section<'_>) -> T) -> Option<T> {
        let path = Path::default();
        Field::new(node, path, self).section(read)
    }

    /// Every fault, in the order of the file, the values read, and the files that went into them, each once.
    pub fn finish(self) -> (Vec<Fault>, Values, Vec<path::PathBuf>) {
        let mut faults = self.faults.into_inner();
        faults.sort_by_key(|fault| fault.place);
        let files = self.substituted.into_inner();
        (faults, self.values.into_inner(), files)
    }

    /// Remembers that these files went into a value.
    pub fn note_files(&self, files: Vec<path::PathBuf>) {
        let mut all = self.substituted.borrow_mut();
        for file in files {
            if !all.contains(&file) {
                all.push(file);
            }
        }
    }

    /// Remembers the value of a setting.
    pub fn value(&self, path: &Path, text: &str, told: Told) {
        self.values.borrow_mut().add(path, text, told);
    }

    /// Adds a fault.
    pub fn fault(&self, place: Place, path: Path, problem: Problem, hint: Option<String>) {
        self.faults.borrow_mut().push(Fault {
            place: Some(place),
            path,
            problem,
            hint,
        });
    }
}

/// What is done with the files that a configuration names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NamedFiles {
    /// They are looked into: one that is of no use is a fault.
    Read,
    /// They are where the configuration will run, which is not here.
    Elsewhere,
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
        self.field(key)?.secret(parse)
    }

    /// Whether what files hold is known here; else [`PLACEHOLDER`](super::PLACEHOLDER) stands for it.
    pub fn looks_into_files(&self) -> bool {
        self.reading.named_files == NamedFiles::Read
    }

    /// The path at `key` of a file into which `look` looks; `None` if it is absent or at fault.
    pub fn file<E>(
        &mut self,
        key: &'static str,
        look: impl FnOnce(&path::Path) -> Result<(), E>,
    ) -> Option<path::PathBuf>
    where
        Rejected: From<E>,
    {
        let here = self.looks_into_files();
        self.optional::<_, Rejected>(key, |text| {
            let path = path::PathBuf::from(text);
            if here {
                look(&path).map_err(Rejected::from)?;
            }
            Ok(path)
        })
    }

    /// The same of a file that is watched: what it holds is a part of the configuration.
    pub fn watched_file<E>(
        &mut self,
        key: &'static str,
        look: impl FnOnce(&path::Path) -> Result<(), E>,
    ) -> Option<path::PathBuf>
    where
        Rejected: From<E>,
    {
        let reading = self.reading;
        self.file(key, |path| {
            reading.note_files(vec![path.to_owned()]);
            look(path)
        })
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

    /// Adds a fault of the whole mapping.
    pub fn conflict_here(&self, problem: impl Into<String>, hint: Option<&str>) {
        let problem = Problem::Conflict(problem.into());
        let hint = hint.map(str::to_owned);
        self.reading
            .fault(self.place, self.path.clone(), problem, hint);
    }

    /// Whether it has no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Remembers that it is there, where that alone says something.
    pub fn note(&self) {
        self.reading.value(&self.path, "{}", Told::Change);
    }

    /// Remembers what the files that it names hold, so that a change of it is one of the configuration.
    pub fn note_content(&self, content: &str) {
        let path = self.path.key("content");
        self.reading.value(&path, content, Told::Secret);
    }

    /// What `read` finds in the file that `key` names, which is watched like the configuration's own from now on: another
    /// content is another configuration. Nothing of it is kept but a hash, nor told. `None` if `key` is absent or at
    /// fault, or files are not looked into.
    pub fn content<E>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&path::Path) -> Result<Vec<u8>, E>,
    ) -> Option<Vec<u8>>
    where
        Rejected: From<E>,
    {
        let mut content = None;
        self.watched_file(key, |path| read(path).map(|read| content = Some(read)));
        let content = content?;
        let path = self.path.key(key).key("content");
        let digest = blake3::hash(&content).to_hex();
        self.reading.value(&path, &digest, Told::Secret);
        Some(content)
    }

    /// Which setting this is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A mapping of `entries` that begins at `place`.
    pub fn of(entries: &'a [Entry], place: Place, path: Path, reading: &'a Reading<'a>) -> Self {
        Self {
            entries,
            place,
            path,
            known: Vec::new(),
            reading,
        }
    }

    /// Reads it, then adds a fault for every key that was not asked for.
    pub fn read<T>(mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let value = read(&mut self);
        for entry in self.entries {
            if !self.known.contains(&entry.key.as_str()) {
                let problem = Problem::UnknownKey {
                    known: self.known.clone(),
                };
                let hint = misplaced(&self.path, &entry.key)
                    .map(str::to_owned)
                    .or_else(|| nearest(&entry.key, self.known.iter().copied()));
                let path = self.path.key(&entry.key);
                self.reading.fault(entry.place, path, problem, hint);
            }
        }
        value
    }

    /// The value of `key`, for a setting that has more than one form; `None` if it is absent.
    pub fn field(&mut self, key: &'static str) -> Option<Field<'a>> {
        self.known.push(key);
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(Field::new(&entry.node, self.path.key(key), self.reading))
    }
}

/// What to do about a key that exists, but not in the mapping at `path`.
fn misplaced(path: &Path, key: &str) -> Option<&'static str> {
    let path = path.to_string();
    if path.ends_with(".not") && key == "not" {
        return Some("there is no not of a not; list what is to match under match itself");
    }
    let apply = nearest(key, ["apply"]).is_some();
    (apply && path.starts_with("policies"))
        .then_some("apply is for all policies: write it at the top, beside policies")
}
