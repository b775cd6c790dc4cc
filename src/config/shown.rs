//! A configuration as it may be shown: what its file says, with variables put in and nothing that is secret.

use std::fmt;

use serde_json::{Map, Value as Json};

use super::{
    error::Path,
    leaf::is_plain_integer,
    tree::{Node, Value},
    values::Values,
};

/// The settings that were given, by their keys; those left out have their defaults. In the place of what is secret,
/// or came from a file, stands `***`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ShownSettings(pub Json);

/// It says in many words what the settings of components say.
impl fmt::Debug for ShownSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShownSettings(…)")
    }
}

impl ShownSettings {
    /// What `root` says, of which `values` were read.
    pub(super) fn of(root: &Node, values: &Values) -> Self {
        Self(shown(root, &Path::default(), values))
    }
}

fn shown(node: &Node, path: &Path, values: &Values) -> Json {
    match &node.value {
        Value::Mapping(entries) => {
            let entries = entries.iter().map(|entry| {
                let path = path.key(&entry.key);
                (entry.key.clone(), shown(&entry.node, &path, values))
            });
            Json::Object(entries.collect())
        }
        Value::List(nodes) => {
            let nodes = nodes.iter().enumerate();
            nodes
                .map(|(index, node)| shown(node, &path.item(index), values))
                .collect()
        }
        // A key with nothing after it is a mapping that holds nothing.
        Value::Word { text, plain: true } if text.is_empty() => Json::Object(Map::new()),
        Value::Word { plain, .. } => match values.shown(&path.to_string()) {
            Some(text) if *plain => plain_word(text),
            text => text.unwrap_or(HIDDEN).into(),
        },
        Value::Refused => HIDDEN.into(),
    }
}

fn plain_word(text: &str) -> Json {
    match text {
        "true" => true.into(),
        "false" => false.into(),
        text if is_plain_integer(text) => match text.parse::<u64>() {
            Ok(number) => number.into(),
            Err(_) => text.into(),
        },
        text => text.into(),
    }
}

/// What stands in the place of what is not shown.
pub(super) const HIDDEN: &str = "***";
