//! Variables in values: `${NAME}`, `${NAME:-default}`, and `$$` for a dollar sign.
//!
//! It works on one scalar that YAML has already delimited, in one pass: what a variable holds is never
//! read again, neither as YAML nor for further variables, so it can change a value but not the file's
//! structure. A dollar sign that is none of the three forms is refused rather than guessed at.

use std::borrow::Cow;

/// The environment, as an argument: nothing here reads the process's own.
pub type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// `text` with its variables put in.
///
/// A default stands in for a variable that is unset or empty, as in a shell.
///
/// # Errors
/// If a variable without a default is unset, or a dollar sign begins none of the three forms.
pub fn substitute<'t>(text: &'t str, env: &Environment<'_>) -> Result<Cow<'t, str>, VariableError> {
    if !text.contains('$') {
        return Ok(Cow::Borrowed(text));
    }
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        done.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            done.push('$');
            rest = after;
        } else {
            let body = after.strip_prefix('{').ok_or(VariableError::Dollar)?;
            let (body, after) = body.split_once('}').ok_or(VariableError::Unclosed)?;
            done.push_str(&value(body, env)?);
            rest = after;
        }
    }
    done.push_str(rest);
    Ok(Cow::Owned(done))
}

/// The value of what stands between the braces.
fn value(body: &str, env: &Environment<'_>) -> Result<String, VariableError> {
    let (name, default) = match body.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (body, None),
    };
    let first = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !name.as_bytes().first().is_some_and(first) || !name.bytes().all(plain) {
        return Err(VariableError::Name);
    }
    match default {
        Some(default) if default.contains('$') => Err(VariableError::Nested),
        Some(default) => Ok(env(name)
            .filter(|value| !value.is_empty())
            .unwrap_or_else(|| default.to_owned())),
        None => env(name).ok_or_else(|| VariableError::Unset(name.to_owned())),
    }
}

/// A variable that cannot be put in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VariableError {
    /// It has no value and no default.
    #[error("the environment variable {0} is not set; set it, or write ${{{0}:-default}}")]
    Unset(String),
    /// A dollar sign that begins nothing.
    #[error("a dollar sign begins ${{NAME}} or ${{NAME:-default}}; a literal one is written $$")]
    Dollar,
    /// A brace that is never closed.
    #[error("${{ without its }}; a variable is written ${{NAME}} or ${{NAME:-default}}")]
    Unclosed,
    /// Not the name of a variable.
    #[error(
        "a variable's name is letters, digits and underscores, as in ${{NAME}} or ${{NAME:-default}}"
    )]
    Name,
    /// A dollar sign in a default: there is one pass only.
    #[error("the default of a variable is plain text, without a dollar sign")]
    Nested,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_in(text: &str) -> Result<String, VariableError> {
        let env = |name: &str| match name {
            "HOST" => Some("redis".to_owned()),
            "PASSWORD" => Some("pa$$w0rd${HOST}".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        substitute(text, &env).map(Cow::into_owned)
    }

    #[test]
    fn a_variable_is_put_in_and_its_default_stands_in_where_it_is_unset_or_empty() {
        for (text, expected) in [
            ("plain", "plain"),
            ("${HOST}", "redis"),
            ("redis://${HOST}:6379/${DB:-0}", "redis://redis:6379/0"),
            ("${HOST:-other}", "redis"),
            ("${EMPTY:-other}", "other"),
            ("${EMPTY}", ""),
            ("${UNSET:-}", ""),
            ("${UNSET:-a:-b}", "a:-b"),
        ] {
            assert_eq!(put_in(text).expect(text), expected);
        }
    }

    #[test]
    fn what_a_variable_holds_is_never_substituted_again() {
        assert_eq!(put_in("${PASSWORD}").expect("set"), "pa$$w0rd${HOST}");
    }

    #[test]
    fn two_dollar_signs_are_one_and_begin_no_variable() {
        assert_eq!(put_in("pa$$w0rd").expect("escaped"), "pa$w0rd");
        assert_eq!(put_in("$${HOST}").expect("escaped"), "${HOST}");
        assert_eq!(put_in("$$${HOST}").expect("escaped"), "$redis");
    }

    #[test]
    fn a_dollar_sign_that_begins_none_of_the_forms_is_refused() {
        for (text, expected) in [
            ("${UNSET}", VariableError::Unset("UNSET".to_owned())),
            ("$HOST", VariableError::Dollar),
            ("cost: 5$", VariableError::Dollar),
            ("${HOST", VariableError::Unclosed),
            ("${}", VariableError::Name),
            ("${HOST-other}", VariableError::Name),
            ("${1}", VariableError::Name),
            ("${ HOST }", VariableError::Name),
            ("${UNSET:-${HOST}}", VariableError::Nested),
        ] {
            assert_eq!(put_in(text), Err(expected), "{text}");
        }
    }
}
