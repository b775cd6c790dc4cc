//! The files that a configuration names: looked into where it is loaded, so that a start tells what a
//! connection would stumble over.

use std::{
    fs,
    path::{Path, PathBuf},
};

use slidegate::config::{Config, MAX_SECRET_BYTES, PLACEHOLDER};

use super::env;
use crate::support::certificates::Authority;

/// Loads a configuration that names these; what is told, without the folder.
fn load(folder: &Path, password: &str, ca: &str, certificate: &str, key: &str) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    let text = format!(
        "store:\n  url: rediss://app@redis\n  password_file: {}\n  tls:\n    ca: {}\n    certificate: {}\n    \
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

/// Loads a configuration whose values hold `${file:name}`; what is told, without the folder.
fn load_secret(folder: &Path, setting: &str) -> Result<Config, String> {
    let at = format!("{}/", folder.display());
    let text = format!(
        "upstream: {{address: app:3000}}\npolicies: [{{name: p, limits: [1/1s]}}]\n{}",
        setting.replace("file:", &format!("file:{at}"))
    );
    let path = folder.join("config.yaml");
    fs::write(&path, text).expect("written");
    Config::load(&path, &env).map_err(|error| error.to_string().replace(&at, ""))
}

#[test]
fn a_file_is_put_into_a_value_and_told_once_in_the_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("password"), "hunter2\n").expect("written");
    let config = load_secret(
        folder.path(),
        "store: {url: \"redis://u:${file:password}@redis\"}\nidentity: {secret: \"${file:password}\"}",
    )
    .expect("accepted");
    let redis = config.redis.expect("Redis");
    assert!(redis.url.holds_password() && redis.url.to_string() == "redis:6379");
    assert_eq!(config.files, [folder.path().join("password")]);
    assert_eq!(config.warnings, Vec::<String>::new(), "there is a secret");
}

#[test]
fn a_file_that_can_not_be_put_in_is_told_with_its_path_and_the_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = |content: Option<&[u8]>| {
        let path = folder.path().join("secret");
        match content {
            Some(content) => fs::write(&path, content).expect("written"),
            None => drop(fs::remove_file(&path)),
        }
        load_secret(folder.path(), "identity: {secret: \"${file:secret}\"}").map(drop)
    };
    let place = "config.yaml:3:20: identity.secret: the file \"secret\": ";
    for (content, problem) in [
        (
            None,
            "cannot be read: No such file or directory (os error 2)",
        ),
        (
            Some(vec![b'x'; MAX_SECRET_BYTES + 1]),
            "is larger than 65536 bytes",
        ),
        (Some(b"\xff".to_vec()), "not UTF-8"),
    ] {
        assert_eq!(told(content.as_deref()), Err(format!("{place}{problem}")));
    }
    let largest = vec![b'x'; MAX_SECRET_BYTES];
    assert_eq!(told(Some(&largest)), Ok(()));
}

#[test]
fn what_a_file_holds_is_never_told_whatever_the_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = [
        "log: {level: X}",
        "log: {format: X}",
        "apply: X",
        "listen: X",
        "threads: X",
        "store: {url: X}",
        "store: {budget: X}",
        "store: {namespace: X}",
        "store: {url: 'redis://r', sentinel: {addresses: [X]}}",
        "identity: {trusted_proxies: [X]}",
        "identity: {trusted_proxies: X}",
        "responses: {ratelimit: X}",
        "near_limit: {edges: [X, 1]}",
        "exempt: {path: [X]}",
        "block: {client_ip: [X]}",
    ];
    for content in ["hunter2 ", "https://hunter2/x", "hunter2:x", "${hunter2}"] {
        fs::write(folder.path().join("secret"), content).expect("written");
        for setting in settings {
            for value in ["\"${file:secret}\"", "\"a ${TWO}/${file:secret}\""] {
                let setting = setting.replace('X', value);
                let told = load_secret(folder.path(), &setting).expect_err(&setting);
                assert!(!told.contains("hunter"), "{setting}: {told}");
                assert!(told.contains("(not shown, it may hold a secret)"), "{told}");
            }
        }
    }
}

#[test]
fn a_text_that_is_only_parsed_has_a_placeholder_for_each_file() {
    let text = "upstream: {address: app:3000}\npolicies: [{name: p, limits: [1/1s]}]\n\
                threads: \"${file:/absent/threads}\"\n\
                store: {url: \"redis://:${file:/absent/password}@redis\", namespace: \"${file:/absent/password}\"}";
    let config = Config::parse(text, "config.yaml", &env).expect("accepted");
    assert_eq!(config.server.threads.to_string(), PLACEHOLDER);
    let files = ["/absent/threads", "/absent/password"].map(PathBuf::from);
    assert_eq!(config.files, files);
}

#[test]
fn certificates_of_upstreams_are_read_with_the_configuration_and_watched_like_it() {
    let (authority, other) = (Authority::new(), Authority::new());
    let client = authority.certify("client", "DNS:client.test");
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    let [ca, certificate, key] = ["ca", "certificate", "key"].map(at);
    let put = |from: &Path, to: &str| {
        fs::copy(from, to).expect("copied");
    };
    put(&authority.certificate(), &ca);
    put(&client.certificate, &certificate);
    put(&client.key, &key);
    let path = folder.path().join("config.yaml");
    let text = format!(
        "upstream: {{address: app:3000, tls: {{ca: {ca}, certificate: {certificate}, key: {key}}}}}\n\
         policies: [{{name: p, limits: [1/1s]}}]"
    );
    fs::write(&path, text).expect("written");
    let before = Config::load(&path, &env).expect("accepted");
    assert_eq!(before.files, [&ca, &certificate, &key].map(PathBuf::from));
    assert!(
        !format!("{before:?}").contains("BEGIN"),
        "nothing of them is shown"
    );

    put(&other.certificate(), &ca);
    let after = Config::load(&path, &env).expect("accepted");
    assert_eq!(
        after.values.changed(&before.values),
        ["upstream.tls.ca.content"]
    );
    assert_ne!(after.upstreams, before.upstreams);

    let told = |what: &str| {
        let error = Config::load(&path, &env).expect_err(what);
        assert_eq!(
            error.files.len(),
            3,
            "they are watched all the same: {what}"
        );
        let told = error.to_string();
        told.split_once(": upstream.tls.")
            .expect("a path")
            .1
            .trim_end()
            .to_owned()
    };
    put(&other.certify("other", "DNS:other.test").key, &key);
    assert_eq!(
        told("another key"),
        "key: it is not the key of the certificate"
    );
    put(&client.key, &ca);
    put(&client.key, &key);
    assert!(told("no certificate").starts_with("ca: found "));
}
