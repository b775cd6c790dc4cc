#!/usr/bin/env bash
# Builds what is shipped, optimised by a profile of itself at work (PGO): `pgo.sh BINARY...` makes target/pgo/release/BINARY.
#
# First they are built with counters and trained (train.sh), which is slidegate, and bare_proxy if it is named too. Until they
# change, the same profile serves; target/pgo/profdata is the one in use. PROFILE names one to use in its place, by which others
# build the same again: for the same commit and toolchain, since it knows functions by names that are made of both.
set -euo pipefail
profile=${PROFILE:+$(realpath "$PROFILE")}
cd "$(dirname "$0")/.."

readonly here=$PWD/target/pgo
host=$(rustc -vV | sed -n 's/^host: //p')
readonly binaries=("$@")

main() {
    if [ "${#binaries[@]}" = 0 ]; then
        echo "usage: scripts/pgo.sh BINARY..., such as slidegate" >&2
        exit 2
    fi
    mkdir -p "$here"
    [ -n "$profile" ] || make_profile >&2
    # The compiler tells cargo of this file, which goes by its time: the same profile keeps it.
    cmp --silent "$profile" "$here/profdata" || cp "$profile" "$here/profdata"
    build optimised "-Cprofile-use=$here/profdata"
    ln --symbolic --force --no-dereference "optimised/$host/release" "$here/release"
}

# Sets `profile`.
make_profile() {
    local name counting=() merger
    scripts/require.sh curl h2load nginx openssl redis-server wrk
    find_merger
    for name in "${binaries[@]}"; do
        counting+=("$here/counting/$host/release/$name")
    done
    build counting "-Cprofile-generate=$here/counted"
    profile=$here/of-$(IFS=+ && echo "${binaries[*]}").profdata
    if is_older "$profile" scripts/train.sh scripts/train.lua "${counting[@]}"; then
        rm -rf "$here/counted"
        scripts/train.sh "${counting[@]}"
        "$merger" merge --output "$profile.part" "$here"/counted/*.profraw
        mv "$profile.part" "$profile"
    fi
}

# The flag is for what is built, and not for what cargo runs to build it. Nothing else may differ, such as features that tests
# ask for: functions would have other names.
build() {
    env -u CARGO_ENCODED_RUSTFLAGS -u LLVM_PROFILE_FILE RUSTFLAGS="${RUSTFLAGS:-} $2" \
        cargo build --release --locked "${binaries[@]/#/--bin=}" --target "$host" --target-dir "$here/$1"
}

# Whether a file is not there, or older than one of the others.
is_older() {
    local than file=$1
    shift
    for than in "$@"; do
        [ "$file" -nt "$than" ] || return 0
    done
    return 1
}

# Sets `merger`, that of the compiler's own LLVM: another one may not read what it wrote.
find_merger() {
    merger=$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata
    [ -x "$merger" ] || rustup component add llvm-tools || {
        echo "there is no $merger: it comes with \`rustup component add llvm-tools\`" >&2
        exit 1
    }
}

main
