//! The schema for editors says what the loader does: the same keys everywhere, the same defaults, and nothing
//! against a configuration that is fine. Which mistakes it sees is written down.
//!
//! A setting that is new to the loader is added to `src/config/schema.json` where the first test tells.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use jsonschema::Validator;
use serde_json::{Map, Value, json};
use slidegate::config::{Problem, SCHEMA};

use super::{files, parse, root, shipped::documented, text};

/// An unknown key in a mapping makes the loader list those that it knows there. Where the schema has no mapping of
/// keys, the loader has none either.
#[test]
fn at_every_mapping_the_schema_has_the_keys_that_the_loader_knows() {
    let (mut mappings, mut keys, mut others) = (0, 0, 0);
    for setting in settings() {
        let known = known(&setting.place);
        let Some(properties) = setting.properties() else {
            others += 1;
            assert_eq!(known, None, "{:?} is a mapping of keys", setting.place);
            continue;
        };
        let known = known.unwrap_or_else(|| panic!("{:?} is no mapping", setting.place));
        let listed: BTreeSet<_> = properties.keys().map(String::as_str).collect();
        assert_eq!(listed, known, "the schema, the loader: {:?}", setting.place);
        mappings += 1;
        keys += listed.len();
    }
    assert!(mappings >= 16, "found {mappings}");
    assert!(keys >= 70, "found {keys}");
    assert!(others >= 60, "found {others}");
}

#[test]
fn every_key_has_a_description() {
    for setting in settings() {
        for (key, schema) in setting.properties().into_iter().flatten() {
            let said = schema["description"].as_str();
            assert!(
                said.is_some_and(|said| said.ends_with('.')),
                "{:?}.{key}",
                setting.place
            );
        }
    }
}

#[test]
fn what_is_required_is_what_the_loader_misses() {
    let mut found = 0;
    for setting in settings() {
        let faults = faults(&setting.place, json!({}));
        // Of several ways to say it, the first is what the loader asks for.
        let required = ["/required", "/anyOf/0/required"].map(|at| setting.schema.pointer(at));
        let required: Vec<_> = required
            .into_iter()
            .flatten()
            .filter_map(Value::as_array)
            .flatten()
            .collect();
        for key in setting.properties().into_iter().flat_map(Map::keys) {
            let path = told(&setting.place, key);
            let below = format!("{path}.");
            let missed = faults.iter().any(|(at, problem)| {
                let here = *at == path || at.starts_with(&below);
                here && matches!(problem, Problem::Missing { .. })
            });
            let required = required.contains(&&json!(key));
            assert_eq!(required, missed, "{path}");
            found += usize::from(required);
        }
    }
    assert!(found >= 6, "found {found}");
}

/// A default that is written changes nothing, and config.yaml shows the same one.
#[test]
fn every_default_is_the_one_in_use() {
    let base = |setting: &Setting<'_>| {
        let mut base = json!({
            "upstream": {"address": "app:1"},
            "policies": [{"name": "p", "limits": ["1/1s"]}],
            "identity": {"trusted_proxies": 1, "consumers": {"file": "/consumers.yaml"}},
        });
        if pointer(&setting.place).starts_with("/listen/") {
            base["listen"] = json!([{"address": "unix:/run/slidegate.sock"}]);
        }
        if pointer(&setting.place).starts_with("/upstreams") {
            let all = base.as_object_mut().expect("a mapping");
            all.remove("upstream");
            base["upstreams"] = json!({"any": {"address": "app:1"}});
            base["routes"] = json!([{"upstream": "any"}]);
        }
        if pointer(&setting.place).starts_with("/responses/cors/") {
            base["responses"] = json!({"cors": {"origins": ["https://app.test"]}});
        }
        // Without checks they have no settings.
        let checks = setting
            .place
            .iter()
            .position(|step| matches!(step, Step::Key("health_check")));
        if let Some(checks) = checks {
            *at(&mut base, &setting.place[..=checks]) = json!({});
        }
        // Without a Redis the rest of the store has no effect that could be seen.
        if pointer(&setting.place) != "/store/url" {
            base["store"] = json!({"url": "redis://redis"});
        }
        base
    };
    let in_use = |document: &Value| match parse(&document.to_string()) {
        Ok(config) => format!("{config:?}"),
        Err(error) => panic!("{error}"),
    };
    let shipped = yaml(&text(&root().join("config.yaml")));
    let (mut found, mut shown) = (0, 0);
    for setting in settings() {
        let Some(default) = setting.schema.get("default") else {
            continue;
        };
        found += 1;
        let mut written = base(&setting);
        *at(&mut written, &setting.place) = default.clone();
        let without = in_use(&base(&setting));
        assert_eq!(in_use(&written), without, "{:?}", setting.place);
        // Each of several upstreams has the settings of the only one.
        let pointer = pointer(&setting.place).replace("/upstreams/any/", "/upstream/");
        // Two policies are shown, and who is counted is what they are about.
        if let Some(value) = shipped.pointer(&pointer)
            && !pointer.ends_with("/identifier")
        {
            shown += 1;
            let value = value.as_str().map_or(value.clone(), unset);
            assert_eq!(&value, default, "{pointer} in config.yaml");
        }
    }
    assert!(found >= 33, "found {found}");
    // What checks of upstreams do, and who else may read answers, is in comments, since there are none by default.
    let in_comments = 7 + 2 * 4;
    assert!(
        shown + in_comments >= found,
        "config.yaml shows {shown} of {found}"
    );
}

#[test]
fn every_configuration_that_is_fine_fits_the_schema() {
    let schema = validator();
    let mut fine = vec![
        root().join("config.yaml"),
        root().join("k8s/component/config.yaml"),
    ];
    fine.extend(files("valid", "yaml"));
    let mut fine: Vec<_> = fine
        .iter()
        .map(|file| (file.display().to_string(), text(file)))
        .collect();
    fine.extend(documented());
    assert!(fine.len() >= 24, "found {}", fine.len());
    for (name, text) in fine {
        let document = yaml(&text);
        let faults = schema.iter_errors(&document).map(|error| {
            let place = error.instance_path().to_string();
            format!("{name}: {place}: {error}\n")
        });
        let faults: String = faults.collect();
        assert!(faults.is_empty(), "{faults}");
    }
}

/// An editor shows a part of the mistakes; `slidegate check` tells them all. With `BLESS` set the list is written.
#[test]
fn the_mistakes_that_the_schema_sees_are_those_listed() {
    let schema = validator();
    let seen = files("invalid", "yaml").into_iter().filter(|file| {
        let read: Result<Value, _> = serde_yaml::from_str(&text(file));
        read.is_ok_and(|document| !schema.is_valid(&document))
    });
    let seen: Vec<_> = seen
        .filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned()))
        .collect();
    assert!(seen.len() >= 100, "found {}", seen.len());
    let seen = format!("{}\n", seen.join("\n"));
    let list = root().join("tests/snapshots/mistakes_seen_by_the_schema.txt");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&list, &seen).expect("written");
    }
    assert_eq!(text(&list), seen, "{}", list.display());
}

/// One value that a configuration may have.
struct Setting<'s> {
    place: Vec<Step<'s>>,
    schema: &'s Value,
}

#[derive(Clone, Copy, Debug)]
enum Step<'s> {
    Key(&'s str),
    Item,
}

impl<'s> Setting<'s> {
    fn properties(&self) -> Option<&'s Map<String, Value>> {
        self.schema.get("properties")?.as_object()
    }
}

/// Every setting of the schema, each once: of several forms, the one with keys.
fn settings() -> Vec<Setting<'static>> {
    let whole: &'static Value = Box::leak(Box::new(schema()));
    let mut found = Vec::new();
    walk(whole, whole, &mut Vec::new(), &mut found);
    let mut settings = BTreeMap::new();
    for setting in found {
        let pointer = pointer(&setting.place);
        if setting.properties().is_some() || !settings.contains_key(&pointer) {
            settings.insert(pointer, setting);
        }
    }
    settings.into_values().collect()
}

fn walk(
    whole: &'static Value,
    schema: &'static Value,
    place: &mut Vec<Step<'static>>,
    found: &mut Vec<Setting<'static>>,
) {
    found.push(Setting {
        place: place.clone(),
        schema,
    });
    let forms = ["anyOf", "allOf"].map(|key| schema[key].as_array());
    for form in forms.into_iter().flatten().flatten() {
        walk(whole, form, place, found);
    }
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.strip_prefix('#').expect("in this file");
        walk(whole, whole.pointer(name).expect(name), place, found);
    }
    let properties = schema["properties"].as_object().into_iter().flatten();
    let properties = properties.map(|(key, schema)| (Step::Key(key), schema));
    let items = schema.get("items").map(|schema| (Step::Item, schema));
    let any = schema.get("additionalProperties");
    let any = any.filter(|schema| schema.is_object());
    let any = any.map(|schema| (Step::Key("any"), schema));
    for (step, schema) in properties.chain(items).chain(any) {
        place.push(step);
        walk(whole, schema, place, found);
        place.pop();
    }
}

/// The keys that the loader knows in the mapping at `place`; `None` if there is none.
fn known(place: &[Step<'_>]) -> Option<BTreeSet<&'static str>> {
    let faults = faults(place, json!({"zz": 1}));
    let path = told(place, "zz");
    faults.into_iter().find_map(|(at, problem)| match problem {
        Problem::UnknownKey { known } if at == path => Some(known.into_iter().collect()),
        _ => None,
    })
}

/// What the loader says of a configuration with nothing but `value` at `place`.
fn faults(place: &[Step<'_>], value: Value) -> Vec<(String, Problem)> {
    let mut document = json!({});
    *at(&mut document, place) = value;
    let faults = parse(&document.to_string()).err().map(|error| error.faults);
    let faults = faults.into_iter().flatten();
    let faults = faults.map(|fault| (fault.path.to_string(), fault.problem));
    faults.collect()
}

/// The value at `place`, which is made.
fn at<'v>(value: &'v mut Value, place: &[Step<'_>]) -> &'v mut Value {
    place.iter().fold(value, |value, step| match step {
        Step::Key(key) => &mut value[*key],
        Step::Item => {
            if !value.is_array() {
                *value = json!([null]);
            }
            &mut value[0]
        }
    })
}

/// The path of a key as faults tell it.
fn told(place: &[Step<'_>], key: &str) -> String {
    let steps = place.iter().map(|step| match step {
        Step::Key(key) => format!(".{key}"),
        Step::Item => "[0]".to_owned(),
    });
    let path = format!("{}.{key}", steps.collect::<String>());
    path.trim_start_matches('.').to_owned()
}

fn pointer(place: &[Step<'_>]) -> String {
    let steps = place.iter().map(|step| match step {
        Step::Key(key) => format!("/{key}"),
        Step::Item => "/0".to_owned(),
    });
    steps.collect()
}

/// What a value of config.yaml is without any environment.
fn unset(text: &str) -> Value {
    let default = text
        .strip_prefix("${")
        .and_then(|body| body.split_once(":-"));
    let default = default.and_then(|(_, default)| default.strip_suffix('}'));
    json!(default.unwrap_or(text))
}

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).expect("YAML")
}

fn validator() -> Validator {
    jsonschema::draft7::new(&schema()).expect("a schema of draft-07")
}

fn schema() -> Value {
    serde_json::from_str(SCHEMA).expect("JSON")
}
