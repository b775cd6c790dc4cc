#!/usr/bin/env bash
# Builds the targets of fuzz/ with coverage for libFuzzer, on stable Rust, and runs each for SECONDS_EACH, two at a
# time. Arguments are the targets; without any, all. What is found is in fuzz/artifacts, and makes it end with 1.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
# Above what an input may take, even on a machine that is busy with builds.
most_seconds=10
seconds=${SECONDS_EACH:-600}
if [ "$#" -eq 0 ]; then
    for file in targets/*.rs; do
        set -- "$@" "$(basename "$file" .rs)"
    done
fi

# With --target the flags are for the targets and not for what runs while they are built, which has no libFuzzer.
host=$(rustc -vV | sed -n 's/^host: //p')
coverage='-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4'
for part in inline-8bit-counters pc-table trace-compares; do
    coverage="$coverage -Cllvm-args=-sanitizer-coverage-$part"
done
RUSTFLAGS="$coverage" cargo build --locked --release --features engine --target "$host" --target-dir target

fuzz() {
    local name=$1 started status=0
    mkdir -p "artifacts/$name" "target/corpus/$name"
    started=$SECONDS
    # It writes what it learns into the first folder, and only reads the second.
    "target/$host/release/$name" "target/corpus/$name" "corpus/$name" \
        -artifact_prefix="artifacts/$name/" -max_total_time="$seconds" -timeout="$most_seconds" \
        -max_len=4096 -rss_limit_mb=1024 -print_final_stats=1 >"artifacts/$name.log" 2>&1 || status=$?
    if [ "$status" -eq 0 ]; then
        echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "artifacts/$name.log") inputs in" \
            "$((SECONDS - started)) s, nothing found"
    else
        echo "$name: FOUND, see fuzz/artifacts/$name.log and the inputs in fuzz/artifacts/$name"
        grep -a -m 5 -A 1 -E 'panicked at|ERROR: libFuzzer' "artifacts/$name.log" || true
    fi
    return "$status"
}

failed=0
running=0
for name in "$@"; do
    if [ "$running" -ge 2 ]; then
        wait -n || failed=1
        running=$((running - 1))
    fi
    fuzz "$name" &
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n || failed=1
    running=$((running - 1))
done
exit "$failed"
