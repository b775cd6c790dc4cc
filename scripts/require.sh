#!/bin/sh
# Makes sure that the commands named as arguments are there. As root on Debian it installs what is missing;
# elsewhere it says what to install, and fails.
set -eu

# Debian keeps daemons where the search path of ordinary users does not look.
PATH=$PATH:/usr/sbin:/sbin

works() {
    case $1 in
    # Debian's gcc alone, without the C library's headers, can not build anything.
    cc) echo '#include <stdlib.h>
int main(void) { return EXIT_SUCCESS; }' | cc -x c - -o /dev/null 2>/dev/null ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

package() {
    case $1 in
    c++) echo g++ ;;
    cc) echo gcc libc6-dev ;;
    curl) echo curl ca-certificates ;;
    dnsmasq) echo dnsmasq-base ;;
    h2load) echo nghttp2-client ;;
    ip) echo iproute2 ;;
    node) echo nodejs ;;
    promtool) echo prometheus ;;
    script) echo bsdutils ;;
    strip) echo binutils ;;
    nsenter | setpriv | taskset | unshare) echo util-linux ;;
    *) echo "$1" ;;
    esac
}

missing=
packages=
for command in "$@"; do
    works "$command" && continue
    if [ "$command" = cargo ]; then
        echo "cargo is missing: install a Rust toolchain with rustup, and open a new shell" >&2
        exit 1
    fi
    missing="$missing $command"
    packages="$packages $(package "$command")"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "missing:$missing. Install them; Debian has them in the packages$packages" >&2
    exit 1
fi
install="apt-get install --yes --no-install-recommends$packages"
if [ "$(id -u)" -ne 0 ]; then
    echo "missing:$missing. Install them with: sudo apt-get update && sudo $install" >&2
    exit 1
fi

# Debian starts a server when it installs it, and a taken port then fails the installation. Nothing here
# uses a server that happens to run.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' INT TERM HUP
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
fi
echo "missing:$missing. Installing:$packages" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update --quiet </dev/null >&2
# Split into words: it is a command line.
# shellcheck disable=SC2086
$install </dev/null >&2

for command in $missing; do
    if ! works "$command"; then
        echo "$command is still missing after: $install" >&2
        exit 1
    fi
done
