//! Certificates of one's own, made by the `openssl` command.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use tempfile::TempDir;

/// A certificate authority that nobody else knows.
pub struct Authority {
    directory: TempDir,
}

/// A certificate and its key, in files.
pub struct Certified {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// An entry of `listen` at a free port that shows these certificates; `more` stands behind their list.
pub fn tls_listener(certified: &[&Certified], more: &str) -> String {
    let pairs = certified.iter().map(|pair| {
        let (certificate, key) = (pair.certificate.display(), pair.key.display());
        format!("{{certificate: {certificate}, key: {key}}}")
    });
    let pairs = pairs.collect::<Vec<_>>().join(", ");
    format!("{{address: \"127.0.0.1:0\", tls: {{certificates: [{pairs}]{more}}}}}")
}

impl Authority {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::write(directory.path().join("config"), CONFIG).expect("written");
        let authority = Self { directory };
        authority.openssl("ca", &["-extensions", "ca"], "DNS:nowhere.test", 2);
        authority
    }

    /// Its own certificate.
    pub fn certificate(&self) -> PathBuf {
        self.directory.path().join("ca.crt")
    }

    /// Certifies the bearer of these names, such as `IP:127.0.0.1, DNS:localhost`; `file` names the files.
    pub fn certify(&self, file: &str, names: &str) -> Certified {
        self.certify_for(file, names, 2)
    }

    /// The same for so many days.
    pub fn certify_for(&self, file: &str, names: &str, days: u32) -> Certified {
        let signed = ["-extensions", "leaf", "-CA", "ca.crt", "-CAkey", "ca.key"];
        self.openssl(file, &signed, names, days);
        Certified {
            certificate: self.directory.path().join(format!("{file}.crt")),
            key: self.directory.path().join(format!("{file}.key")),
        }
    }

    fn openssl(&self, file: &str, options: &[&str], names: &str, days: u32) {
        let output = Command::new("openssl")
            .args(["req", "-x509", "-config", "config", "-noenc"])
            .args(["-days", &days.to_string()])
            .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"])
            .args(["-keyout", &format!("{file}.key")])
            .args(["-out", &format!("{file}.crt")])
            .args(options)
            .current_dir(self.directory.path())
            .env("NAMES", names)
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| {
                panic!("openssl does not start ({error}): `make test` installs it")
            });
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
    }
}

const CONFIG: &str = "\
[req]
distinguished_name = dn
prompt = no
[dn]
CN = slidegate test
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
[leaf]
basicConstraints = critical, CA:FALSE
subjectAltName = ${ENV::NAMES}
";
