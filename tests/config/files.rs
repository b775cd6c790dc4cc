//! The files that a configuration names: looked into where it is loaded, so that a start tells what a
//! connection would stumble over.

use std::{fs, path::Path};

use slidegate::config::Config;

use super::env;
use crate::support::certificates::Authority;

/// Loads a configuration that names these; what is told, without the folder.
fn load(folder: &Path, password: &str, ca: &str, certificate: &str, key: &str) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    let text = format!(
        "store:\n  url: rediss://redis\n  password_file: {}\n  tls:\n    ca: {}\n    certificate: {}\n    \
         key: {}\nupstream: {{address: app:3000}}\npolicies: [{{name: p, limits: [1/1s]}}]",
        at(password),
        at(ca),
        at(certificate),
        at(key)
    );
    let path = folder.join("config.yaml");
    fs::write(&path, text).expect("written");
    let told = match Config::load(&path, &env) {
        Ok(_) => "ok".to_owned(),
        Err(error) => error.to_string(),
    };
    told.replace(&at(""), "")
}

#[test]
fn files_that_are_of_use_are_accepted_and_others_told_with_what_is_wrong() {
    let authority = Authority::new();
    let ours = authority.certify("ours", "DNS:slidegate.test");
    let folder = ours.key.parent().expect("a folder");
    fs::write(folder.join("password"), "hunter2\n").expect("written");
    fs::write(folder.join("empty"), "").expect("written");
    assert_eq!(
        load(folder, "password", "ca.crt", "ours.crt", "ours.key"),
        "ok"
    );
    assert_eq!(
        load(folder, "empty", "password", "ours.key", "absent"),
        "\
config.yaml:3:18: store.password_file: found \"empty\"; this file is empty
config.yaml:5:9: store.tls.ca: found \"password\"; this file holds no certificate in PEM, which begins \
-----BEGIN CERTIFICATE-----
config.yaml:6:18: store.tls.certificate: found \"ours.key\"; this file holds no certificate in PEM, which \
begins -----BEGIN CERTIFICATE-----
config.yaml:7:10: store.tls.key: found \"absent\"; this file cannot be read: No such file or directory \
(os error 2)"
    );
}
