#!/usr/bin/env bash
# Has binaries that count what they do (pgo.sh) do what a proxy does all day: `train.sh SLIDEGATE [BARE_PROXY]`. What is not
# done here is taken for rare, and made smaller rather than faster. A minute; less for fewer TRAINING_SECONDS than 10.
set -euo pipefail
cd "$(dirname "$0")/.."
# Debian keeps nginx where the search path of ordinary users does not look.
PATH=$PATH:/usr/sbin

readonly gate=$1 bare=${2:-} seconds=${TRAINING_SECONDS:-10}
scratch=$(mktemp -d)
# An address of our own, so that no port is taken.
readonly address=127.$((RANDOM % 100 + 100)).$((RANDOM % 256)).$((RANDOM % 254 + 1))
readonly plain=$address:8000 encrypted=$address:8443 metrics=$address:9464 upstream=$address:8080 redis=$address:6379
running=()

main() {
    trap leave EXIT
    trap 'exit 1' INT TERM HUP
    mkdir "$scratch/www"
    head --bytes 100000 /dev/zero >"$scratch/www/large"
    head --bytes 4096 /dev/zero >"$scratch/body"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=api.example.com \
        -keyout "$scratch/tls.key" -out "$scratch/tls.crt" 2>/dev/null
    start_servers

    train memory:
    train "redis://$redis"
    train "redis://$redis" 'audit: {sample: 0.01}' 'access_log: {format: json, sample: 0.5}'
    replay
    [ -z "$bare" ] || train_bare
}

start_servers() {
    cat >"$scratch/nginx.conf" <<EOF
daemon off; master_process off; pid $scratch/pid; error_log $scratch/nginx.log;
events {}
http {
    access_log off; keepalive_requests 1000000; client_body_temp_path $scratch/body_temp; proxy_temp_path $scratch/proxy_temp;
    fastcgi_temp_path $scratch/fastcgi; uwsgi_temp_path $scratch/uwsgi; scgi_temp_path $scratch/scgi;
    server {
        listen $upstream;
        location / { return 200 'hello'; }
        location = /orders/large { alias $scratch/www/large; }
    }
}
EOF
    start nginx -e "$scratch/nginx.log" -c "$scratch/nginx.conf"
    start redis-server --bind "$address" --port "${redis#*:}" --protected-mode no --save '' --appendonly no
    until_true curl --noproxy "*" --silent --output /dev/null "http://$upstream/"
    until_true connects "$redis"
}

# One slidegate with this store, and these lines in its configuration.
train() {
    local store=$1 tls="tls: {certificates: [{certificate: $scratch/tls.crt, key: $scratch/tls.key}]}"
    shift
    {
        cat <<EOF
threads: 1
listen: [{address: "$plain", h2c: true}, {address: "$encrypted", $tls}]
metrics_listen: $metrics
admin_listen: "off"
upstream: {address: "$upstream"}
store: {url: "$store", budget: 5s}
policies:
  - {name: orders, match: {path: [/orders/*]}, identifier: [header:x-api-key], limits: [1000000/1m, 10000000/1h]}
  - {name: denied, match: {path: [/denied/*]}, identifier: [header:x-api-key, client_ip], limits: [1/1h]}
  - {name: exact, match: {path: [/exact/*]}, identifier: [header:x-api-key], limits: [10/10s], algorithm: sliding_log}
  - {name: fixed, match: {path: [/fixed/*]}, identifier: [header:x-api-key], limits: [10/10s], algorithm: fixed_window}
  - {name: per-ip, identifier: [client_ip], limits: [1000000000/1m], mode: shadow}
EOF
        printf '%s\n' "$@"
    } >"$scratch/config.yaml"
    start "$gate" run --config "$scratch/config.yaml"
    until_true curl --noproxy "*" --silent --fail --output /dev/null "http://$metrics/readyz"

    ask_all_kinds 10 50
    ask admitted 1000 --h1 "http://$plain/orders/7"
    ask admitted 300 "http://$plain/orders/7"
    ask admitted 300 "https://$encrypted/orders/7"
    ask denied 300 --h1 "https://$encrypted/denied/7"
    ask admitted 100 --data "$scratch/body" "https://$encrypted/orders/7"
    ask admitted 100 "https://$encrypted/orders/large"
    curl --noproxy "*" --silent --output /dev/null "http://$metrics/metrics"
    stop_last
}

# By 64 kept connections of HTTP/1.1. Of the answers at least and at most so many in a hundred are to be denials.
ask_all_kinds() {
    local told requests denied unanswered
    told=$(wrk --threads 1 --connections 64 --duration "${seconds}s" --script scripts/train.lua "http://$plain")
    read -r requests denied unanswered <<<"$(sed -n 's/^requests, denied, unanswered: //p' <<<"$told")"
    ((requests > 0 && unanswered == 0 && 100 * denied >= $1 * requests && 100 * denied <= $2 * requests)) ||
        fail "wanted $1 to $2 in a hundred denied: $told"
}

# So many requests for each second, all of which are `admitted`, or all but the first `denied`.
ask() {
    local requests=$(($2 * seconds)) wanted told
    case $1 in
    admitted) wanted="$requests 2xx, 0 3xx, 0 4xx, 0 5xx" ;;
    denied) wanted="1 2xx, 0 3xx, $((requests - 1)) 4xx, 0 5xx" ;;
    esac
    shift 2
    told=$(h2load --requests "$requests" --clients 16 --max-concurrent-streams 4 --header "x-api-key: $RANDOM$RANDOM" "$@")
    grep --quiet "status codes: $wanted" <<<"$told" || fail "wanted $wanted of $*: $told"
}

# A log of 250 clients, decided on again.
replay() {
    awk -v lines=$((seconds * 10000)) 'BEGIN { srand(1); for (n = 0; n < lines; n++) {
        printf "192.0.2.%d - - [03/Dec/2026:10:%02d:%02d +0000] \"GET /orders/%d HTTP/1.1\" 200 512 \"-\" \"agent\"\n",
            int(250 * rand()), n / 2000, int(n / 34) % 60, n % 50 } }' >"$scratch/access.log"
    "$gate" replay --limit 100/1m "$scratch/access.log" >/dev/null
}

# Pingora alone: by SIGTERM it would go on for minutes.
train_bare() {
    start "$bare" "$plain" "$upstream"
    until_true curl --noproxy "*" --silent --output /dev/null "http://$plain/"
    ask_all_kinds 0 0
    stop_last INT
}

start() {
    "$@" >>"$scratch/log" 2>&1 &
    running+=($!)
}

# What was started last writes what it counted when it ends by itself.
stop_last() {
    kill "-${1:-TERM}" "${running[-1]}"
    wait "${running[-1]}" || fail "it ended with $?"
    unset 'running[-1]'
}

until_true() {
    for _ in $(seq 100); do
        "$@" 2>/dev/null && return
        sleep 0.1
    done
    fail "not within 10 s: $*"
}

fail() {
    printf '%s\n' "$1" "The end of its log:" >&2
    tail "$scratch/log" >&2
    exit 1
}

connects() {
    : 2>/dev/null >"/dev/tcp/${1%:*}/${1#*:}"
}

leave() {
    local status=$?
    {
        [ "${#running[@]}" = 0 ] || kill -KILL "${running[@]}"
        wait
    } 2>/dev/null || :
    rm -rf "$scratch"
    exit "$status"
}

main
