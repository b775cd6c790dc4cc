#!/bin/sh
# Runs a command, and says how long it took and how it ended.
set -eu

started=$(date +%s)
status=0
"$@" || status=$?
echo "== $* took $(($(date +%s) - started)) s and ended with $status" >&2
exit "$status"
