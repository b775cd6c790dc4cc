//! Variables and files in values: `${NAME}`, `${NAME:-default}`, `${file:/path}`, and `$$` for a dollar sign.
//!
//! It works on one scalar that YAML has already delimited, in one pass: what a variable or a file holds is
//! never read again, neither as YAML nor for further variables, so it can change a value but not the file's
//! structure. A dollar sign that is none of the forms is refused rather than guessed at. How a file is read
//! is the caller's, as the environment is.

use std::{borrow::Cow, path};

use super::error::Problem;

/// The environment, as an argument: nothing here reads the process's own.
pub type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The text of the file at a path, or why there is none.
pub type Files<'a> = dyn Fn(&path::Path) -> Result<String, Problem> + 'a;

/// A value with everything put in.
#[derive(Debug, PartialEq, Eq)]
pub struct Substituted<'t> {
    /// Its text.
    pub text: Cow<'t, str>,
    /// The files that went into it. If there is one, the text is never shown.
    pub files: Vec<path::PathBuf>,
}

/// `text` with its variables and files put in.
///
/// A default stands in for a variable that is unset or empty, as in a shell. Of a file one line end at its
/// end is left out, since editors and `echo` write it.
///
/// # Errors
/// If a variable without a default is unset, a file is of no use, or a dollar sign begins none of the forms.
pub fn substitute<'t>(
    text: &'t str,
    env: &Environment<'_>,
    files: &Files<'_>,
) -> Result<Substituted<'t>, VariableError> {
    let mut read = Vec::new();
    if !text.contains('$') {
        let text = Cow::Borrowed(text);
        return Ok(Substituted { text, files: read });
    }
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        done.push_str(before);
        if let Some(after) = after.strip_prefix('$') {
            done.push('$');
            rest = after;
            continue;
        }
        let body = after.strip_prefix('{').ok_or(VariableError::Dollar)?;
        let (body, after) = body.split_once('}').ok_or(VariableError::Unclosed)?;
        if let Some(path) = body.strip_prefix("file:") {
            if path.is_empty() || path.contains('$') || closes_nothing(after) {
                return Err(VariableError::Path);
            }
            done.push_str(&content(path.as_ref(), files)?);
            read.push(path.into());
        } else {
            done.push_str(&value(body, env)?);
        }
        rest = after;
    }
    done.push_str(rest);
    let text = Cow::Owned(done);
    Ok(Substituted { text, files: read })
}

/// Whether a brace ends what was never begun: it was meant for the path before it, which it cut short.
fn closes_nothing(after: &str) -> bool {
    let own = after.split('$').next().unwrap_or_default();
    own.find('}').is_some_and(|end| !own[..end].contains('{'))
}

/// The text of a file without one line end.
fn content(path: &path::Path, files: &Files<'_>) -> Result<String, VariableError> {
    let mut text = files(path).map_err(|problem| VariableError::File {
        path: path.display().to_string().into(),
        problem: problem.to_string().into(),
    })?;
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
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

/// A variable or a file that cannot be put in.
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
    /// No path, or one that cannot be told from what is around it.
    #[error(
        "after ${{file: stands the path of a file, without $ or }} in it, as in ${{file:/run/secrets/name}}"
    )]
    Path,
    /// A file that is of no use.
    #[error("the file {path:?}: {problem}")]
    File {
        /// As it is written.
        path: Box<str>,
        /// The operating system's words, or what is wrong with what it holds, which is not told.
        problem: Box<str>,
    },
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
        let files = |path: &path::Path| match path.to_str() {
            Some("/secret") => Ok("hunter2\n".to_owned()),
            Some("/dollars") => Ok("a$$b${HOST}${file:/secret}\n\n".to_owned()),
            Some("/dos") => Ok("hunter2\r\n".to_owned()),
            Some("/empty") => Ok(String::new()),
            _ => Err(Problem::Unreadable("gone".to_owned())),
        };
        substitute(text, &env, &files).map(|done| done.text.into_owned())
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
    fn a_file_is_put_in_without_one_line_end_and_never_substituted_again() {
        for (text, expected) in [
            ("${file:/secret}", "hunter2"),
            ("${file:/dos}", "hunter2"),
            ("${file:/empty}", ""),
            (
                "redis://u:${file:/secret}@${HOST}/{0}",
                "redis://u:hunter2@redis/{0}",
            ),
            ("${file:/dollars}", "a$$b${HOST}${file:/secret}\n"),
            ("$${file:/secret}", "${file:/secret}"),
        ] {
            assert_eq!(put_in(text).expect(text), expected);
        }
    }

    #[test]
    fn a_file_that_is_gone_and_a_path_that_can_not_be_meant_are_refused() {
        let gone = VariableError::File {
            path: "/gone".into(),
            problem: "cannot be read: gone".into(),
        };
        assert_eq!(put_in("a${file:/gone}"), Err(gone));
        for text in [
            "${file:}",
            "${file:/run/${HOST}}",
            "${file:/a$b}",
            "${file:/secret}b}",
        ] {
            assert_eq!(put_in(text), Err(VariableError::Path), "{text}");
        }
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
