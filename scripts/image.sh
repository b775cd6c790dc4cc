#!/usr/bin/env bash
# Builds the image and runs it as a cluster would: read-only, without root, with a bound on memory; asks it, and stops it.
# No registry is needed: the images that the Dockerfile begins with are made here, by debootstrap and of the toolchain of this
# machine, under the same names. Root on Debian; everything is under target/image, and is removed by `rm -rf`.
set -euo pipefail
cd "$(dirname "$0")/.."

for command in buildah debootstrap podman runc; do
    if ! command -v "$command" >/dev/null; then
        echo "SKIPPED: no $command, so the image was neither built nor run" >&2
        exit 0
    fi
done

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
here=$PWD/target/image
mkdir -p "$here"
# Copies whole layers, and asks nothing of the kernel.
storage=(--storage-driver vfs --root "$here/storage" --runroot "$here/run")
podman=(podman "${storage[@]}" --cgroup-manager cgroupfs)
build=$(sed -n 's/^FROM \(rust:[^ ]*\).*/\1/p' Dockerfile)
run=$(sed -n 's/^FROM \(debian:[^ ]*\).*/\1/p' Dockerfile)
release=${run#debian:}
release=${release%-slim}

if ! buildah "${storage[@]}" inspect "localhost/$build" >/dev/null 2>&1; then
    rm -rf "$here/debian"
    debootstrap --variant=minbase "$release" "$here/debian" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$here/debootstrap.log"
    tar --create --directory "$here/debian" . | "${podman[@]}" import --quiet - "localhost/$run" >/dev/null
    # What the official image has beside the toolchain, which is mounted.
    chroot "$here/debian" apt-get install --yes --no-install-recommends ca-certificates gcc libc6-dev >"$here/apt.log"
    tar --create --directory "$here/debian" . |
        "${podman[@]}" import --quiet \
            --change ENV=PATH=/usr/local/toolchain/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            --change ENV=CARGO_HOME=/usr/local/cargo - "localhost/$build" >/dev/null
    rm -rf "$here/debian"
fi

# The toolchain is mounted read-only, so it is made complete here; and without rustup, whose toolchains may be links to places
# that are not in the container.
rustup component add llvm-tools
toolchain=$(realpath "$(rustc --print sysroot)")
echo "== build"
buildah "${storage[@]}" bud --quiet --isolation chroot --pull-never --layers --format docker \
    --volume "${CARGO_HOME:-$HOME/.cargo}:/usr/local/cargo" --volume "$toolchain:/usr/local/toolchain:ro" \
    --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
    --tag "localhost/slidegate:$version" . >"$here/build.log" 2>&1 || {
    tail -n 30 "$here/build.log" >&2
    exit 1
}
"${podman[@]}" images --format '{{.Repository}}:{{.Tag}} {{.Size}}' | grep "slidegate:$version"

echo "== run"
name=slidegate-image-$$
stop() { "${podman[@]}" rm --force --time 0 "$name" >/dev/null 2>&1 || true; }
trap stop EXIT
cat >"$here/config.yaml" <<EOF
listen: 127.0.0.1:18700
metrics_listen: 127.0.0.1:18701
admin_listen: "off"
upstream: {address: "127.0.0.1:1"}
policies: [{name: per-ip, limits: [1/1h]}]
EOF
# No cgroups where this machine lets nobody make any.
limits=(--memory 64m)
[ -w /sys/fs/cgroup/cgroup.subtree_control ] || [ -w /sys/fs/cgroup/memory ] || limits=(--cgroups disabled)
# Its health check wants systemd here, and is asked below.
"${podman[@]}" run --detach --no-healthcheck --name "$name" --runtime runc --network host --read-only --read-only-tmpfs=false \
    --cap-drop all --security-opt no-new-privileges --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 "${limits[@]}" \
    --volume "$here/config.yaml:/etc/slidegate/config.yaml:ro" "localhost/slidegate:$version" >/dev/null
healthy() { "${podman[@]}" exec "$name" /usr/local/bin/slidegate healthcheck --config /etc/slidegate/config.yaml; }
for _ in $(seq 100); do
    if healthy 2>/dev/null; then
        break
    fi
    sleep 0.1
done
healthy
echo "the health check in the container: well"
user=$("${podman[@]}" exec "$name" sed -n 's/^Uid:\t\([0-9]*\)\t.*/\1/p' /proc/1/status)
[ "$user" = 65532 ] || { echo "it runs as $user" >&2; exit 1; }
if "${podman[@]}" exec "$name" touch /tmp/written 2>/dev/null; then
    echo "the root file system can be written" >&2
    exit 1
fi
codes=
for _ in 1 2; do
    codes="$codes $(curl --silent --noproxy '*' --output /dev/null --write-out '%{http_code}' http://127.0.0.1:18700/)"
done
[ "$codes" = " 502 429" ] || { echo "answered$codes" >&2; exit 1; }
echo "as $user, read-only: nobody upstream 502, past the limit 429"
started=$SECONDS
"${podman[@]}" stop --time 30 "$name" >/dev/null
code=$("${podman[@]}" inspect --format '{{.State.ExitCode}}' "$name")
[ "$code" = 0 ] || { echo "ended with $code" >&2; exit 1; }
echo "SIGTERM: ended with 0 after $((SECONDS - started)) s"
