//! Clients that ask for large bodies and read nothing: what each holds of the proxy's memory, and for how long.

use std::{fs::File, io::Write as _, net::TcpStream, thread, time::Duration};

use slidegate::clock;

use super::{
    report::{Bound, Report},
    scenarios::Scale,
    support::{binary::Binary, nginx::Nginx},
    system::{metric, resident},
};

/// 400 connections with a body of a gigabyte each.
pub fn slow_readers(_: &Scale, report: &mut Report) {
    let nginx = Nginx::start_with("", "");
    let file = File::create(nginx.folder().join("large")).expect("a file");
    // A hole: it takes no room on the disk.
    file.set_len(1_000_000_000).expect("a length");
    let gate = Binary::start(&format!(
        "upstream: {{address: \"{}\"}}\n\
         bounds: {{body_timeout: {BODY_TIMEOUT}s}}\n\
         log: {{level: warn}}\n\
         policies: [{{name: p, limits: [1000000/1m]}}]\n",
        nginx.address
    ));
    let (before, began) = (resident(&gate), clock::instant());
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let mut stream = TcpStream::connect(gate.proxy).expect("it listens");
            let request = b"GET /large HTTP/1.1\r\nHost: soak\r\n\r\n";
            stream.write_all(request).expect("a request is sent");
            stream
        })
        .collect();
    let (mut grown, mut most) = (0.0_f64, 0.0_f64);
    let patience = Duration::from_secs(3 * BODY_TIMEOUT);
    let mut open = READERS as f64;
    while open > 0.0 && clock::elapsed(began) < patience {
        grown = grown.max(resident(&gate) - before);
        open = metric(&gate, "slidegate_connections ");
        most = most.max(open);
        thread::sleep(Duration::from_millis(50));
    }
    let until = clock::elapsed(began).as_secs_f64();
    drop(readers);

    let mut add =
        |what: &str, value, unit, bound| report.add("slow-readers", what, value, unit, bound);
    let readers = READERS as f64;
    add(
        "connections open at once, most",
        most,
        "",
        Bound::AtLeast(readers),
    );
    add("  resident memory, most grown by", grown, "MB", Bound::None);
    add(
        "  of one of them",
        1e3 * grown / readers,
        "kB",
        Bound::AtMost(MOST_EACH),
    );
    // The last write that got through is what counts.
    let longest = BODY_TIMEOUT as f64 + 10.0;
    add(
        "  until all were cut off",
        until,
        "s",
        Bound::AtMost(longest),
    );
}

const READERS: usize = 400;

/// In seconds; its default is 60.
const BODY_TIMEOUT: u64 = 10;

/// What docs/listeners.md says that a connection takes, in kB.
const MOST_EACH: f64 = 1_000.0;
