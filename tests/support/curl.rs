//! curl, for what it tells of an answer and not for its body.

use std::process::{Command, Stdio};

/// curl that gives up after so many seconds, and writes this of the answer: `%{http_code}` and the like.
pub fn curl_for(seconds: &str, written: &str) -> Command {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--noproxy", "*"])
        .args(["--max-time", seconds])
        .args(["--output", "/dev/null", "--write-out", written])
        .stdin(Stdio::null());
    curl
}
