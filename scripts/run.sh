#!/usr/bin/env bash
# Builds slidegate and runs it with config.yaml in the foreground: `make run`.
#
# UPSTREAM, REDIS_URL and SLIDEGATE_SECRET reach config.yaml through the environment. Without UPSTREAM a
# demonstration upstream is built and started too. Whatever ends first, nothing stays behind.
set -euo pipefail
cd "$(dirname "$0")/.."

# Ends with what started it, even by SIGKILL: make can not tell us of that.
if [[ ! ${TIED:-} ]] && command -v setpriv >/dev/null; then
    TIED=yes exec setpriv --pdeathsig TERM scripts/run.sh
fi
unset TIED

# As in config.yaml.
readonly proxy=127.0.0.1:8000 metrics=127.0.0.1:9464
readonly binaries=${CARGO_TARGET_DIR:-target}/release
# Empty is as good as not given: `make run UPSTREAM=`.
[[ ${UPSTREAM:-} ]] || unset UPSTREAM
[[ ${REDIS_URL:-} ]] || unset REDIS_URL

main() {
    local build=(--bin slidegate) store=${REDIS_URL:+Redis}
    [[ ${UPSTREAM:-} ]] || build+=(--bin demo_upstream)

    scratch=$(mktemp -d)
    trap leave EXIT
    trap stop INT TERM HUP

    start cargo build --release --locked "${build[@]}"
    builder=$!
    status_of "$builder"
    builder=''

    if [[ ! ${UPSTREAM:-} ]]; then
        start "$binaries/demo_upstream" 127.0.0.1:0 >"$scratch/upstream"
        demo=$!
        until_true 5 demo_has_an_address || fail "the demonstration upstream did not start"
        UPSTREAM=$(sed -n 's/.* listens on //p' "$scratch/upstream")
        export UPSTREAM
    fi
    start "$binaries/slidegate" run --config config.yaml
    gate=$!
    if until_true 30 gate_is_ready; then
        introduce "$UPSTREAM" "${store:-this process (memory)}"
    elif alive "$gate" && [[ ! $stopping ]]; then
        fail "slidegate does not answer on http://$metrics/readyz: does config.yaml listen elsewhere?"
    fi

    # `wait -n` would be told of a child's end only if it came during the wait.
    while alive "$gate" && { [[ ! $demo ]] || alive "$demo" || [[ $stopping ]]; }; do
        # Ctrl-C ends it too.
        sleep 0.5 || :
    done
    alive "$gate" && fail "the demonstration upstream ended"
    status_of "$gate"
}

builder='' demo='' gate='' stopping='' scratch=''

# Starts a command in the background that ends when this script does, even by SIGKILL.
start() {
    local tied=()
    ! command -v setpriv >/dev/null || tied=(setpriv --pdeathsig TERM)
    # In a process group of its own, so that Ctrl-C reaches this script only: slidegate would take it and
    # our signal for two, and the second of two means at once.
    set -m
    "${tied[@]}" "$@" </dev/null &
    set +m
}

# The first signal lets requests in flight finish, the second does not wait.
stop() {
    stopping=yes
    [[ $gate ]] || exit 130
    kill -TERM "$gate" 2>/dev/null || :
}

leave() {
    local status=$? pid
    trap '' INT TERM HUP
    for pid in $builder $gate $demo; do
        alive "$pid" && kill -TERM "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null || :
    done
    rm -rf "$scratch"
    exit "$status"
}

fail() {
    echo "$*" >&2
    exit 1
}

alive() {
    kill -0 "$1" 2>/dev/null
}

status_of() {
    local status=0
    wait "$1" || status=$?
    return "$status"
}

# Asks five times a second, for at most $1 seconds; gives up early when a child has ended.
until_true() {
    local tries=$(($1 * 5))
    shift
    while ((tries-- > 0)); do
        sleep 0.2
        [[ ! $stopping ]] || return 1
        [[ ! $demo ]] || alive "$demo" || return 1
        [[ ! $gate ]] || alive "$gate" || return 1
        "$@" && return 0
    done
    return 1
}

demo_has_an_address() {
    [[ -s $scratch/upstream ]]
}

gate_is_ready() {
    curl --silent --fail --max-time 1 --output /dev/null "http://$metrics/readyz"
}

introduce() {
    cat <<EOF

slidegate is ready. What it says of itself, and of an upstream or a Redis that does not answer, is above.
  proxy    http://$proxy, told to stand in front of http://$1
  metrics  http://$metrics/metrics   (also /livez, /readyz)
  counters told to be in $2; limits: config.yaml

Try, in another terminal:
  curl -i -H 'x-api-key: alice' http://$proxy/hello
  for i in \$(seq 120); do curl -s -o /dev/null -w '%{http_code}\n' -H 'x-api-key: bob' http://$proxy/; done | sort | uniq -c
  curl -s http://$metrics/metrics | grep near_limit

Look at: the X-RateLimit and RateLimit headers of the first; how many of the second are answered 200, how many
429; and which bands near the limit those decisions fell into.

Ctrl-C stops it.
EOF
}

main
