//! The access logs in `tests/logs`, as requests: when, and from where.

use std::{fs, net::IpAddr, path::Path};

use slidegate::ratelimit::Timestamp;

/// One request of a log.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub at: Timestamp,
    pub client: IpAddr,
}

/// Every line of a log in common or combined format; one that cannot be read fails the test.
pub fn read(name: &str) -> Vec<Request> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/logs")
        .join(name);
    // Some clients sent bytes that are no UTF-8; address and stamp are before them.
    let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    String::from_utf8_lossy(&bytes)
        .lines()
        .map(|line| request(line).unwrap_or_else(|| panic!("{name}: {line}")))
        .collect()
}

fn request(line: &str) -> Option<Request> {
    let (client, rest) = line.split_once(' ')?;
    let (_, rest) = rest.split_once('[')?;
    let (stamp, _) = rest.split_once(']')?;
    Some(Request {
        at: Timestamp::from_seconds(seconds(stamp)?),
        client: client.parse().ok()?,
    })
}

/// `22/Jan/2019:03:56:14 +0330` in seconds since the epoch.
fn seconds(stamp: &str) -> Option<u64> {
    let (moment, zone) = stamp.split_once(' ')?;
    let parts: Vec<&str> = moment.split(['/', ':']).collect();
    let &[day, month, year, hour, minute, second] = &parts[..] else {
        return None;
    };
    let month = MONTHS.iter().position(|name| *name == month)?;
    let number = |text: &str| text.parse::<i64>().ok();
    let days = days_before(number(year)?, month) + number(day)? - 1;
    let local = ((days * 24 + number(hour)?) * 60 + number(minute)?) * 60 + number(second)?;
    let (sign, offset) = zone.split_at_checked(1)?;
    let (hours, minutes) = offset.split_at_checked(2)?;
    let offset = (number(hours)? * 60 + number(minutes)?) * 60;
    u64::try_from(if sign == "-" {
        local + offset
    } else {
        local - offset
    })
    .ok()
}

/// Days from the epoch to the first of a month, the first month being 0.
fn days_before(year: i64, month: usize) -> i64 {
    let is_leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let years: i64 = (1970..year)
        .map(|year| 365 + i64::from(is_leap(year)))
        .sum();
    let leap_day = i64::from(month > 1 && is_leap(year));
    years + LENGTHS[..month].iter().sum::<i64>() + leap_day
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const LENGTHS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

#[test]
fn a_stamp_is_read_in_its_zone() {
    assert_eq!(seconds("01/Jan/1970:00:00:00 +0000"), Some(0));
    assert_eq!(seconds("01/Mar/2000:00:00:00 +0000"), Some(951_868_800));
    assert_eq!(seconds("22/Jan/2019:03:56:14 +0330"), Some(1_548_116_774));
    assert_eq!(seconds("01/Aug/1995:00:00:01 -0400"), Some(807_249_601));
    assert_eq!(seconds("yesterday"), None);
}
