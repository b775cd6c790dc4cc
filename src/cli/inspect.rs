//! `slidegate inspect`: what the store holds of one client, and what a request of it would meet now.
//! Charges nothing.

use std::io::Write;

use serde_json::json;

use super::{
    client::{self, ClientError, Selection},
    report,
};
use crate::config::Environment;

/// Prints what the store holds to `out`, as JSON or as a table.
pub(super) fn inspect(
    selection: &Selection,
    env: &Environment<'_>,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), ClientError> {
    client::with(selection, env, async |client| {
        let held = client.held().await?;
        if as_json {
            let identifier = client.identifier.to_string();
            let told = json!({"identifier": identifier, "policies": report::json(&held)});
            writeln!(out, "{told:#}")?;
            return Ok(());
        }
        writeln!(out, "identifier {}\n", client.identifier)?;
        report::table(&held, out)?;
        if !report::any(&held) {
            writeln!(out, "\n{NOTHING}")?;
        }
        Ok(())
    })
}

/// It looks the same whether nobody came or the wrong one was looked for.
pub(super) const NOTHING: &str = "Nothing is counted: no admitted request in this window or the one before. If there were some, the \
     proxies use another identity.secret, store.namespace or Redis than this configuration, or the key is \
     another.";
