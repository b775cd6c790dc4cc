#!/bin/sh
# Licences, banned crates, sources and security advisories of the dependencies: see deny.toml.
set -eu

if ! cargo deny --version >/dev/null 2>&1; then
    cargo install --locked cargo-deny@0.20.2
fi

cargo deny check bans licenses sources
# What is built only to fuzz goes to nobody, so that its licences are not looked at.
cargo deny --manifest-path fuzz/Cargo.toml --config deny.toml check --allow unmatched-skip bans sources

# The database is a git repository, which not every machine can reach. What it says must fail the build;
# that it can not be reached must not, but never in silence.
if cargo deny fetch db; then
    cargo deny --offline check advisories
    cargo deny --offline --manifest-path fuzz/Cargo.toml --config deny.toml check advisories
else
    echo "SKIPPED: the advisory database can not be fetched, so the dependencies were not checked against it" >&2
fi
