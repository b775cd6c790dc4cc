//! The files that hold passwords, certificates and keys.
//!
//! They are read for each connection, so that what was rotated is found without a restart. None is
//! watched: a connection that lives needs nothing of them any more.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use redis::{ClientTlsConfig, TlsCertificates};

use super::trouble::Trouble;
use crate::pem::{UnusableFile, bytes, certificates, key};

/// A password, or where it is found.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// It is known.
    Known(String),
    /// The content of a file, but for a line end after it.
    File(PathBuf),
}

/// The password itself is never shown.
impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(_) => f.write_str("Known(***)"),
            Self::File(path) => write!(f, "File({path:?})"),
        }
    }
}

/// What TLS needs besides the names of servers; all of it in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Whose certificates are trusted. Default: those that Mozilla trusts, as of the build.
    pub ca: Option<PathBuf>,
    /// Who we are to a server that asks. Default: nobody.
    pub client: Option<ClientFiles>,
}

/// A client's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// The certificate, then those between it and the CA.
    pub certificate: PathBuf,
    /// Its key, not encrypted.
    pub key: PathBuf,
}

/// What the files hold at a moment.
#[derive(Default)]
pub(super) struct Held {
    pub(super) password: Option<String>,
    /// `None` if no file is named.
    pub(super) certificates: Option<TlsCertificates>,
}

/// Reads all of them. It may block.
pub(super) fn read(password: Option<&Password>, tls: &TlsFiles) -> Result<Held, Trouble> {
    fn told<T>(path: &Path, read: fn(&Path) -> Result<T, UnusableFile>) -> Result<T, Trouble> {
        read(path).map_err(|problem| Trouble::File {
            path: path.to_owned(),
            problem,
        })
    }
    let password = match password {
        None => None,
        Some(Password::Known(password)) => Some(password.clone()),
        Some(Password::File(path)) => Some(told(path, self::password)?),
    };
    if *tls == TlsFiles::default() {
        let certificates = None;
        return Ok(Held {
            password,
            certificates,
        });
    }
    let ca = tls.ca.as_ref().map(|path| told(path, certificates));
    let client = tls.client.as_ref().map(|files| {
        Ok::<_, Trouble>(ClientTlsConfig {
            client_cert: told(&files.certificate, certificates)?,
            client_key: told(&files.key, key)?,
        })
    });
    Ok(Held {
        password,
        certificates: Some(TlsCertificates {
            client_tls: client.transpose()?,
            root_cert: ca.transpose()?,
        }),
    })
}

/// The password in the file at `path`.
///
/// # Errors
/// If it cannot be read, is empty, or is no text.
pub fn password(path: &Path) -> Result<String, UnusableFile> {
    let mut text = String::from_utf8(bytes(path)?).map_err(|_| UnusableFile::Encoding)?;
    // An editor ends every line, `kubectl create secret` none.
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    if text.is_empty() {
        return Err(UnusableFile::Empty);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(content: &[u8]) -> Result<String, UnusableFile> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), content).expect("written");
        password(file.path())
    }

    #[test]
    fn a_password_is_the_content_of_its_file_but_for_one_line_end() {
        for (content, expected) in [
            ("secret", "secret"),
            ("secret\n", "secret"),
            ("secret\r\n", "secret"),
            (" se\ncret \n\n", " se\ncret \n"),
        ] {
            assert_eq!(read(content.as_bytes()).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn a_file_without_a_password_is_told_apart() {
        assert_eq!(read(b""), Err(UnusableFile::Empty));
        assert_eq!(read(b"\n"), Err(UnusableFile::Empty));
        assert_eq!(read(b"\xff"), Err(UnusableFile::Encoding));
        assert_eq!(read(&vec![b'x'; 1 << 21]), Err(UnusableFile::TooLarge));
        let absent = password(Path::new("/nowhere"));
        assert!(matches!(absent, Err(UnusableFile::Unreadable(_))));
    }

    #[test]
    fn what_a_file_or_a_setting_holds_is_not_in_its_debug_form() {
        let known = Password::Known("hunter2".to_owned());
        assert!(!format!("{known:?}").contains("hunter2"));
    }
}
