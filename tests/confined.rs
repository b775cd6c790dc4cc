//! What the binary asks of the system: no user of its own, and no file that it could write.

use std::process::Command;

use crate::support::{binary::Binary, skip::skip, upstream::Upstream};

/// Runs its arguments as a user who is nobody, where no file system can be written and there is no folder for temporary
/// files. That nothing can be written is tried first. The program and its configuration, which only their owner may reach,
/// are put in the places of files that everybody may read.
const CONFINE: &str = r#"
exec unshare --mount sh -euc '
    binary=$1 config=$4
    chmod a+r "$config"
    mount --bind "$binary" /usr/bin/env
    mount --bind "$config" /etc/hosts
    while read -r _ at _; do
        case $at in
        /proc* | /sys*) ;;
        *) mount -o remount,bind,ro "$at" 2>/dev/null || : ;;
        esac
    done </proc/self/mounts
    mount -o bind,ro,remount / 2>/dev/null || mount -o remount,ro /
    export TMPDIR=/nowhere HOME=/nowhere
    exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs --bounding-set=-all sh -euc "
        for folder in / /tmp /var/tmp /run /dev/shm; do
            if touch \$folder/written 2>/dev/null; then
                echo \$folder can be written >&2
                exit 1
            fi
        done
        exec /usr/bin/env run --config /etc/hosts
    "
' sh "$@"
"#;

#[tokio::test]
async fn it_serves_as_nobody_and_without_a_file_that_it_could_write() {
    // As the root of a user namespace there is no other user to become.
    let tried = Command::new("unshare")
        .args(["--mount", "setpriv", "--reuid", "65534", "true"])
        .output()
        .expect("unshare runs: `make test` installs it");
    if !tried.status.success() {
        let told = String::from_utf8_lossy(&tried.stderr);
        skip(&format!(
            "it takes root to become nobody where nothing can be written: {}",
            told.trim()
        ));
        return;
    }
    let upstream = Upstream::start();
    let binary = Binary::start_by(
        &format!(
            "upstream: {{address: \"{}\"}}\nshutdown: {{drain_delay: 0ms}}\n\
             policies: [{{name: per-ip, limits: [2/366d]}}]\n",
            upstream.address
        ),
        CONFINE,
    );
    let status = std::fs::read_to_string(format!("/proc/{}/status", binary.child.id()));
    let status = status.expect("it runs");
    assert!(status.contains("Uid:\t65534\t65534"), "{status}");
    for expected in [200, 200, 429] {
        let response = reqwest::get(binary.url("/")).await.expect("answered");
        assert_eq!(response.status(), expected);
    }
    let metrics = binary.observed("/metrics").await;
    assert!(metrics.contains("slidegate_requests_total"), "{metrics}");
    assert_eq!(
        binary.observed("/readyz").await.lines().next(),
        Some("ready")
    );
    binary.signal("TERM");
    let log = binary.log_file();
    assert_eq!(binary.exit_code(), Some(0), "{log:?}");
}
