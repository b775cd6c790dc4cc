//! `slidegate inspect`: what the store holds of one client, and what a request of it would meet now.
//! Charges nothing.

use std::io::Write;

use super::{
    client::{self, ClientError, Selection},
    report,
};
use crate::{config::Environment, held};

/// Prints what the store holds to `out`, as JSON or as a table.
pub(super) fn inspect(
    selection: &Selection,
    env: &Environment<'_>,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), ClientError> {
    client::with(selection, env, async |client| {
        let found = client.held().await?;
        if as_json {
            writeln!(out, "{:#}", held::inspected(client.identifier, &found))?;
            return Ok(());
        }
        writeln!(out, "identifier {}\n", client.identifier)?;
        report::table(&found, out)?;
        if !held::any(&found) {
            writeln!(out, "\n{NOTHING}")?;
        }
        Ok(())
    })
}

/// It looks the same whether nobody came or the wrong one was looked for.
pub(super) const NOTHING: &str = "Nothing is counted: no admitted request in this window or the one before. If there were some, the \
     proxies use another identity.secret, store.namespace or Redis than this configuration, or the key is \
     another.";
