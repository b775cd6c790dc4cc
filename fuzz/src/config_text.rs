//! What a configuration's text can do: be accepted or refused, and neither tell a secret nor take the loader down.
//!
//! An input is the text. It may name the variables `TWO`, `SECRET` and `EMPTY`.

use slidegate::config::{Config, ConfigError};

/// Panics if a fault lies outside of the text, a secret is told, or the same text is read in two ways.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let read = parse(&text);
    match &read {
        Ok(config) => assert_hidden(&format!("{config:?}{:?}", config.warnings)),
        Err(error) => check_faults(error, &text),
    }
    assert_eq!(told(&read), told(&parse(&text)), "read once more");
    if !text.starts_with(MARK) {
        let marked = format!("{MARK}{text}");
        assert_eq!(told(&read), told(&parse(&marked)), "with a byte order mark");
    }
    check_secrets(&text);
}

fn check_faults(error: &ConfigError, text: &str) {
    assert!(!error.faults.is_empty(), "refused for a reason");
    let text = text.strip_prefix(MARK).unwrap_or(text);
    let lines: Vec<usize> = lines(text).map(|line| line.chars().count()).collect();
    for fault in &error.faults {
        let place = fault.place.expect("only a file that is not read has none");
        let line = place.line.checked_sub(1).and_then(|line| lines.get(line));
        let line = line.unwrap_or_else(|| panic!("{fault} in {} lines", lines.len()));
        assert!((1..=line + 1).contains(&place.column), "{fault} in {line}");
        // A setting that is no secret may hold the variable, and is shown.
        let path = fault.path.to_string();
        if SECRETS.contains(&path.as_str()) {
            assert_hidden(&fault.to_string());
        }
    }
    assert!(error.faults.is_sorted_by_key(|fault| fault.place));
}

/// The text as the value of each setting that is a secret, written there or in a variable.
fn check_secrets(text: &str) {
    // A longer one is no other, and costs time.
    let text: String = text.chars().take(100).collect();
    let secret = format!("{text}{SECRET}");
    let quoted = quoted(&secret);
    let whole = quoted.as_str();
    let url = format!("redis://user:{secret}@redis:6379/{text}");
    let url = self::quoted(&url);
    for (url, password, secret) in [
        (whole, "${SECRET}", "${SECRET}"),
        (&*url, whole, whole),
        ("redis://mymaster/0", whole, "${SECRET}"),
        ("redis://${SECRET}:${SECRET}@redis", "${EMPTY}", whole),
    ] {
        let config = format!(
            "store: {{url: {}, password: {}, sentinel: {{addresses: [s:1], user: u, password: {}}}}}\n\
             identity: {{secret: {}}}\nupstream: {{address: app:3000}}\n\
             policies: [{{name: a, limits: [10/1m]}}]\n",
            in_quotes(url),
            in_quotes(password),
            in_quotes(password),
            in_quotes(secret)
        );
        let read = Config::parse(&config, "config.yaml", &|name| match name {
            "SECRET" => Some(format!("{text}{SECRET}")),
            "EMPTY" => Some(String::new()),
            _ => None,
        });
        // As a URL that is accepted it may be the name of a host.
        if read.is_err() || url != whole {
            assert_hidden(&told(&read));
        }
    }
}

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(text, "config.yaml", &|name| match name {
        "TWO" => Some("2".to_owned()),
        "SECRET" => Some(SECRET.to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    })
}

/// Everything that it says to a person, and what `Debug` shows of it.
fn told(read: &Result<Config, ConfigError>) -> String {
    match read {
        Ok(config) => format!("{config:?}"),
        Err(error) => format!("{error}\n{error:?}"),
    }
}

fn assert_hidden(told: &str) {
    assert!(!told.contains(SECRET), "a secret is told: {told}");
}

/// In double quotes, as YAML escapes it, with every dollar sign doubled.
fn quoted(text: &str) -> String {
    let escape = |c: char| match c {
        '$' => "$$".to_owned(),
        ' '..='~' if c != '"' && c != '\\' => c.to_string(),
        c => format!("\\U{:08x}", u32::from(c)),
    };
    let inside: String = text.chars().map(escape).collect();
    format!("\"{inside}\"")
}

/// As [`quoted`], unless it is already.
fn in_quotes(text: &str) -> String {
    match text.starts_with('"') {
        true => text.to_owned(),
        false => format!("\"{text}\""),
    }
}

/// Lines as YAML breaks them; the one behind the last break counts, since there the text ends.
fn lines(text: &str) -> impl Iterator<Item = String> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    lines.into_iter()
}

const SECRETS: [&str; 4] = [
    "identity.secret",
    "store.url",
    "store.password",
    "store.sentinel.password",
];

/// It is no variable's name, and nothing that a message or an input would hold by chance.
const SECRET: &str = "no-one-may-read-this";

const MARK: char = '\u{feff}';
