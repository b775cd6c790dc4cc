//! serde_yaml reads the file too, and must find in it what the tree has.
//!
//! Positions come from one YAML parser; the one that the rest of the world compares against is another.
//! Where they disagree, a person would too, so the file is refused instead of one reading winning.
//! Only a tree without aliases comes here, so serde_yaml has none to expand.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{
    error::{Fault, Path, Problem},
    tree::{self, Entry, Node, Value},
};

/// Whether serde_yaml finds in `text` what `tree` has.
///
/// # Errors
/// The first place at which it does not.
pub fn agree(text: &str, tree: &Node) -> Result<(), Fault> {
    // Read for its syntax alone, no error can quote a value, which may be a secret.
    if let Err(error) = serde_yaml::from_str::<de::IgnoredAny>(text) {
        let words = error.to_string();
        let words = words.split(" at line ").next().unwrap_or_default();
        return Err(fault(text, &error, Problem::Syntax(words.to_owned()), None));
    }
    let read = Same(tree).deserialize(serde_yaml::Deserializer::from_str(text));
    let hint = "quote the value, or write it in a simpler form";
    read.map_err(|error| fault(text, &error, Problem::Ambiguous, Some(hint.to_owned())))
}

/// serde_yaml ends a line at characters of Unicode too, where no editor does: so its own lines are not told. Of a text that
/// it takes for several it tells no place at all: that is the beginning.
fn fault(text: &str, error: &serde_yaml::Error, problem: Problem, hint: Option<String>) -> Fault {
    let index = error.location().map_or(0, |location| location.index());
    Fault {
        place: Some(tree::place_of(text, index)),
        path: Path::default(),
        problem,
        hint,
    }
}

/// Reads what this node has, or fails.
#[derive(Clone, Copy)]
struct Same<'n>(&'n Node);

impl<'de> DeserializeSeed<'de> for Same<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match &self.0.value {
            Value::Word { text, .. } => deserializer.deserialize_str(Word(text)),
            Value::List(items) => deserializer.deserialize_seq(Items(items)),
            Value::Mapping(entries) => deserializer.deserialize_map(Entries(entries)),
            Value::Refused => Err(de::Error::custom("refused")),
        }
    }
}

struct Word<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Word<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Word<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the same word")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        same(text == self.0)
    }
}

struct Items<'n>(&'n [Node]);

impl<'de> Visitor<'de> for Items<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the same list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        for node in self.0 {
            same(items.next_element_seed(Same(node))?.is_some())?;
        }
        same(items.next_element::<de::IgnoredAny>()?.is_none())
    }
}

struct Entries<'n>(&'n [Entry]);

impl<'de> Visitor<'de> for Entries<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the same mapping")
    }

    /// An empty file is an empty mapping.
    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        same(self.0.is_empty())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        for entry in self.0 {
            same(entries.next_key_seed(Word(&entry.key))?.is_some())?;
            entries.next_value_seed(Same(&entry.node))?;
        }
        same(entries.next_key::<de::IgnoredAny>()?.is_none())
    }
}

fn same<E: de::Error>(same: bool) -> Result<(), E> {
    if same {
        Ok(())
    } else {
        Err(E::custom("something else"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::error::Place;

    fn agrees(text: &str, other: &str) -> bool {
        let mut faults = Vec::new();
        let tree = tree::read(text, &mut faults).expect(text);
        assert_eq!(faults, [], "{text}");
        agree(other, &tree).is_ok()
    }

    #[test]
    fn both_parsers_find_the_same_words_in_every_form_of_a_value() {
        for text in [
            "",
            "# a comment",
            "a: b",
            "a:",
            "a: ~",
            "a: 010",
            "{a: [1, 'b', \"c\\n\"], d: {}}",
            "a: |\n  b\n  c\n",
            "a: >-\n  b\n  c\n",
            "a: b # c",
            "a: b\n  c",
            "a: b\r\nc: d\r\n",
        ] {
            assert!(agrees(text, text), "{text:?}");
        }
    }

    /// Three characters after which YAML 1.1 begins a line, and none of several bytes is counted twice.
    #[test]
    fn a_place_is_told_in_lines_as_editors_count_them() {
        for (text, line, column) in [
            ("é: é\u{85}\u{2028}\u{2029}b: c: d", 1, 12),
            ("é: é\r\nb: c: d", 2, 5),
        ] {
            let nothing = tree::read("", &mut Vec::new()).expect("nothing");
            let fault = agree(text, &nothing).expect_err(text);
            assert_eq!(fault.place, Some(Place { line, column }), "{fault}");
        }
    }

    #[test]
    fn another_word_another_shape_and_another_length_are_noticed() {
        for other in [
            "a: [b, d]",
            "a: [b]",
            "a: [b, c, d]",
            "a: {b: c}",
            "a: b",
            "x: [b, c]",
            "{}",
            "",
            "a: [b, c]\nd: e",
            "a: [b, c",
        ] {
            assert!(!agrees("a: [b, c]", other), "{other}");
        }
    }
}
