//! The composition of containers for a look. No Docker runs here: what can be known of it without one.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::support::{prometheus::promtool, skip::skip};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("compose")
}

fn composition() -> Value {
    let text = fs::read_to_string(directory().join("compose.yaml")).expect("the composition");
    let mut value: serde_yaml::Value = serde_yaml::from_str(&text).expect("YAML");
    value.apply_merge().expect("its anchors");
    serde_json::to_value(value).expect("a tree of mappings")
}

fn texts(value: &Value) -> Vec<&str> {
    let list = value.as_array().map_or(&[][..], Vec::as_slice);
    list.iter().map(|one| one.as_str().expect("text")).collect()
}

#[test]
fn every_file_is_there_every_image_has_a_version_and_nothing_is_open_to_others() {
    let composition = composition();
    let services = composition["services"].as_object().expect("services");
    let names: BTreeSet<_> = services.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        BTreeSet::from([
            "app",
            "grafana",
            "prometheus",
            "redis",
            "slidegate-1",
            "slidegate-2"
        ])
    );
    for (name, service) in services {
        let image = service["image"].as_str().expect("an image");
        let (_, tag) = image.rsplit_once(':').expect("a tag");
        assert!(
            tag.starts_with(|one: char| one == 'v' || one.is_ascii_digit()),
            "{image}"
        );
        for volume in texts(&service["volumes"]) {
            let (file, inside) = volume.split_once(':').expect("two paths");
            assert!(directory().join(file).is_file(), "{name}: {file}");
            assert!(inside.ends_with(":ro"), "{volume}");
        }
        for port in texts(&service["ports"]) {
            assert!(port.starts_with("127.0.0.1:"), "{name}: {port}");
        }
        for other in texts(&service["depends_on"]) {
            assert!(names.contains(other), "{name}: {other}");
        }
    }
    for proxy in ["slidegate-1", "slidegate-2"] {
        let proxy = &services[proxy];
        assert_eq!(proxy["read_only"], true);
        assert_eq!(
            proxy["image"],
            concat!("slidegate:", env!("CARGO_PKG_VERSION"))
        );
        // Variables that the shipped configuration reads.
        let shipped = fs::read_to_string(directory().join("../config.yaml")).expect("a file");
        for variable in proxy["environment"].as_object().expect("variables").keys() {
            assert!(shipped.contains(&format!("${{{variable}:-")), "{variable}");
        }
    }
}

#[test]
fn prometheus_takes_its_configuration_and_scrapes_both() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for (from, to) in [
        ("prometheus.yaml", "prometheus.yml"),
        ("../dashboards/alerts.yaml", "alerts.yaml"),
    ] {
        let to = directory.path().join(to);
        fs::copy(self::directory().join(from), to).expect("copied");
    }
    let file = directory.path().join("prometheus.yml");
    let checked = promtool(
        &["check", "config", file.to_str().expect("a path")],
        Stdio::null(),
    );
    let told = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{told}");
    let text = fs::read_to_string(file).expect("a file");
    let config: Value = serde_yaml::from_str(&text).expect("YAML");
    let targets = &config["scrape_configs"][0]["static_configs"][0]["targets"];
    assert_eq!(texts(targets), ["slidegate-1:9464", "slidegate-2:9464"]);
}

#[test]
fn docker_compose_takes_it() {
    let file = directory().join("compose.yaml");
    let file = file.to_str().expect("a path");
    let ways: [&[&str]; 2] = [&["docker", "compose"], &["docker-compose"]];
    for way in ways {
        let version = Command::new(way[0]).args(&way[1..]).arg("version").output();
        if !version.is_ok_and(|version| version.status.success()) {
            continue;
        }
        let checked = Command::new(way[0])
            .args(&way[1..])
            .args(["--file", file, "config", "--quiet"])
            .output();
        let checked = checked.expect("it runs");
        let told = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{told}");
        return;
    }
    skip("no docker compose: nobody read compose/compose.yaml as that does");
}
