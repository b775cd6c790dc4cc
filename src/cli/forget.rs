//! `slidegate forget`: deletes what the store holds of one client, so that it starts afresh.

use std::{io::Write, time::Duration};

use super::{
    client::{self, ClientError, Selection},
    inspect, report,
};
use crate::{config::Environment, held};

/// Deletes the client's counters, and prints to `out` what they held just before.
pub(super) fn forget(
    selection: &Selection,
    env: &Environment<'_>,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), ClientError> {
    client::with(selection, env, async |client| {
        let found = client.held().await?;
        client.forget().await?;
        if as_json {
            let told = held::forgotten(client.identifier, &found, client.denial_cache);
            writeln!(out, "{told:#}")?;
            return Ok(());
        }
        writeln!(out, "identifier {}\n", client.identifier)?;
        report::table(&found, out)?;
        if held::any(&found) {
            writeln!(out, "\nDeleted. {}", until_all_notice(client.denial_cache))?;
        } else {
            writeln!(out, "\n{}", inspect::NOTHING)?;
        }
        Ok(())
    })
}

fn until_all_notice(denial_cache: Duration) -> String {
    let who = if denial_cache.is_zero() {
        "Proxies notice at once (store.denial_cache is 0s)".to_owned()
    } else {
        let longest = report::span(denial_cache);
        format!("Proxies may deny this client for up to {longest} more (store.denial_cache)")
    };
    format!("{who}. One that Redis is away from counts by itself, and keeps its counts.")
}
