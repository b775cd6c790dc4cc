//! `GET /config`: the configuration in force, and what stands in the way of the one in the file.

use serde_json::{Map, Value, json};

use crate::{observe::Reloads, proxy::Origin};

pub(super) fn told(origin: &Origin, reloads: &Reloads) -> Value {
    let waiting = reloads.waiting.iter();
    let waiting = waiting.map(|(path, still)| (path.clone(), json!(still)));
    let refused = reloads.refused.as_ref();
    let refused = refused.map(|refused| json!({"faults": refused.faults, "first": refused.told}));
    json!({
        "fingerprint": origin.fingerprint,
        "settings": origin.settings,
        "waiting_for_restart": waiting.collect::<Map<_, _>>(),
        "refused": refused,
    })
}
