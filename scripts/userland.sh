#!/usr/bin/env bash
# Does what the README says under "Try it" where nothing is there yet: in a Debian of its own, made by debootstrap, with git,
# make and a Rust toolchain, and with a fresh clone of the last commit. `make run` there must answer, `make test` pass.
#
# Root on Debian; everything is under target/userland, and is removed when all went well. The ports of config.yaml must be
# free. The toolchain is this machine's, mounted read-only; what proxies, mirrors and authorities it uses for registries is
# passed on. DEBIAN_MIRROR is where packages come from. Takes half an hour on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly here=$PWD/target/userland
readonly debian=$here/debian
readonly release=bookworm

# Inside, as the first process of its own: when it ends, the kernel ends whatever it has left behind.
if [ "${1:-}" = inside ] && [ $$ = 1 ]; then
    toolchain=$2 # where it is on this machine
    installed=$3 # and there
    mount --bind "$debian" "$debian"
    cd "$debian"
    mount --bind "$toolchain" ".$installed"
    mount -o remount,bind,ro ".$installed"
    mount --rbind /dev dev
    mount --rbind /sys sys
    mount -t proc proc proc
    cp /etc/resolv.conf etc/resolv.conf
    mkdir before
    pivot_root . before
    umount --lazy /before
    rmdir /before
    export HOME=/root PATH=/root/.cargo/bin:$PATH
    exec bash /root/as-the-readme-says.sh
fi

skip() {
    echo "SKIPPED: $*, so no clean Debian has run the README's commands" >&2
    exit 0
}

[ "$(id -u)" = 0 ] || skip "not root"
for command in debootstrap git pivot_root rustup unshare; do
    command -v "$command" >/dev/null || skip "no $command"
done

unshare --mount true 2>/dev/null || skip "the kernel gives no mount namespace"
[ -z "$(git status --porcelain)" ] || echo "what is not committed is not tried" >&2

rm -rf "$here"
mkdir -p "$here"
echo "== debootstrap"
# What the README asks for, and nothing else.
debootstrap --variant=minbase --include=ca-certificates,git,make "$release" "$debian" \
    "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$here/debootstrap.log" || {
    tail -n 20 "$here/debootstrap.log" >&2
    exit 1
}

# Authorities that this machine trusts beside Debian's.
if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
    cp /usr/local/share/ca-certificates/*.crt "$debian/usr/local/share/ca-certificates"
    chroot "$debian" update-ca-certificates >/dev/null 2>&1
fi

# As rustup leaves it behind, with no crate fetched.
cargo_home=${CARGO_HOME:-$HOME/.cargo}
installed=/root/.rustup/toolchains/$(rustup show active-toolchain | cut --delimiter ' ' --fields 1)
mkdir -p "$debian$installed" "$debian/root/.cargo/bin"
cp "$(command -v rustup)" "$debian/root/.cargo/bin/rustup"
for tool in cargo cargo-clippy cargo-fmt rustc rustdoc rustfmt; do
    ln -s rustup "$debian/root/.cargo/bin/$tool"
done
for config in config config.toml; do
    [ ! -e "$cargo_home/$config" ] || cp "$cargo_home/$config" "$debian/root/.cargo"
done

git bundle create --quiet "$debian/root/slidegate.bundle" HEAD

cat >"$debian/root/as-the-readme-says.sh" <<'INSIDE'
set -euo pipefail
exec </dev/null
cd /root
git clone --quiet slidegate.bundle slidegate
cd slidegate
echo "== $(. /etc/os-release && echo "$PRETTY_NAME"), $(dpkg-query --show | wc -l) packages, slidegate $(git rev-parse --short HEAD)"

echo "== make run"
# In a process group of its own: it is told to stop as a terminal tells it.
set -m
make run >/root/run.log 2>&1 &
run=$!
set +m
fail() {
    tail -n 40 /root/run.log
    echo "$*"
    exit 1
}
until grep -q '^slidegate is ready' /root/run.log; do
    kill -0 "$run" 2>/dev/null || fail "make run ended before slidegate was ready"
    sleep 1
done
answer=$(curl --silent --include --header 'x-api-key: alice' http://127.0.0.1:8000/hello) || fail "no answer"
grep -q '^HTTP/1.1 200 ' <<<"$answer" && grep -qi '^x-ratelimit-remaining: 99' <<<"$answer" || fail "answered: $answer"
codes=$(for _ in $(seq 120); do
    curl --silent --output /dev/null --write-out '%{http_code}\n' --header 'x-api-key: bob' http://127.0.0.1:8000/
done | sort | uniq -c | xargs)
# More where a new minute began meanwhile, or a part of the last one was over.
[[ $codes =~ ^1[01][0-9]' 200 '[0-9]+' 429'$ ]] || fail "answered: $codes"
curl --silent --fail http://127.0.0.1:9464/metrics | grep -q near_limit || fail "no metrics"
kill -INT -- "-$run"
wait "$run" || :
for _ in $(seq 300); do
    curl --silent --output /dev/null http://127.0.0.1:9464/livez || break
    sleep 0.1
done
! curl --silent --output /dev/null http://127.0.0.1:9464/livez || fail "it did not stop"
echo "ready, answered: $codes; stopped by Ctrl-C"

echo "== make test"
make test
INSIDE

# What leads to registries, and no more of this machine.
passed=()
while IFS='=' read -r -d '' name value; do
    case $name in
    *_proxy | *_PROXY | *CERT* | CARGO_HTTP_* | CARGO_NET_* | CARGO_REGISTRIES_* | CARGO_SOURCE_*) passed+=("$name=$value") ;;
    esac
done < <(env --null)

env -i "${passed[@]}" TERM=dumb LC_ALL=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    unshare --mount --propagation private --pid --fork --kill-child \
    scripts/userland.sh inside "$(rustc --print sysroot)" "$installed" 2>&1 | tee "$here/log"
# What a test could not do there.
grep '^SKIPPED' "$here/log" || echo "nothing was skipped"
rm -rf "$debian"
