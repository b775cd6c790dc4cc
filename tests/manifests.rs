//! What the image and the manifests under `k8s/` promise a cluster: no root, nothing written, probes that
//! mean what they should, an end within the time granted.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize as _;
use serde_yaml::Value;
use slidegate::config::Config;

#[test]
fn every_manifest_is_yaml_and_listed_in_its_kustomization() {
    let mut kinds = BTreeSet::new();
    for (file, documents) in manifests() {
        kinds.extend(
            documents
                .iter()
                .filter_map(|d| d["kind"].as_str().map(str::to_owned)),
        );
        let name = file.file_name().expect("a file").to_string_lossy();
        if name == "kustomization.yaml" {
            continue;
        }
        let list =
            fs::read_to_string(file.with_file_name("kustomization.yaml")).expect("beside it");
        assert!(
            list.contains(&format!("- {name}\n")),
            "{} is not used",
            file.display()
        );
    }
    let kinds: Vec<_> = kinds.iter().map(String::as_str).collect();
    assert_eq!(
        kinds,
        [
            "Deployment",
            "Kustomization",
            "PodMonitor",
            "PrometheusRule",
            "Service"
        ]
    );
}

#[test]
fn every_container_runs_without_root_privileges_or_a_writable_root() {
    for pod in pods() {
        let user = &pod.spec["securityContext"];
        assert_eq!(user["runAsNonRoot"], true, "{}", pod.file);
        assert!(
            user["runAsUser"].as_u64().is_some_and(|user| user > 0),
            "{}",
            pod.file
        );
        assert_eq!(
            user["seccompProfile"]["type"], "RuntimeDefault",
            "{}",
            pod.file
        );
        assert_eq!(
            pod.spec["automountServiceAccountToken"], false,
            "{}",
            pod.file
        );
        for container in pod.containers() {
            let (name, context) = (&container["name"], &container["securityContext"]);
            assert_eq!(context["readOnlyRootFilesystem"], true, "{name:?}");
            assert_eq!(context["allowPrivilegeEscalation"], false, "{name:?}");
            assert_eq!(context["capabilities"]["drop"][0], "ALL", "{name:?}");
        }
    }
}

#[test]
fn every_container_asks_for_what_it_needs_and_has_a_memory_limit() {
    for pod in pods() {
        for container in pod.containers() {
            let (name, resources) = (&container["name"], &container["resources"]);
            assert!(resources["requests"]["cpu"].is_string(), "{name:?}");
            assert!(resources["requests"]["memory"].is_string(), "{name:?}");
            assert!(resources["limits"]["memory"].is_string(), "{name:?}");
        }
    }
}

#[test]
fn every_image_has_a_tag_and_none_is_latest() {
    for pod in pods() {
        let kustomization = Path::new(&pod.file).with_file_name("kustomization.yaml");
        let images = documents(&kustomization)[0]["images"].clone();
        let images = images.as_sequence().expect("a list of images");
        for container in pod.containers() {
            let set = images
                .iter()
                .find(|image| image["name"] == container["image"]);
            let tag = set.and_then(|image| image["newTag"].as_str());
            let name = &container["name"];
            assert!(
                tag.is_some_and(|tag| !tag.is_empty() && tag != "latest"),
                "{name:?}: {tag:?}"
            );
        }
    }
}

#[test]
fn slidegate_is_a_native_sidecar_that_nothing_ends_early() {
    for sidecar in slidegates() {
        assert_eq!(sidecar["restartPolicy"], "Always");
        assert!(
            sidecar["lifecycle"].is_null(),
            "a hook would end the proxy before the app"
        );
        assert!(
            sidecar["command"].is_null(),
            "the image's entry point takes the signals"
        );
    }
}

#[test]
fn liveness_asks_for_the_process_and_readiness_for_the_proxy() {
    for sidecar in slidegates() {
        let probe = |name: &str| {
            let get = &sidecar[name]["httpGet"];
            let text = |key: &str| get[key].as_str().unwrap_or_default().to_owned();
            (text("path"), text("port"))
        };
        let expected = |path: &str| (path.to_owned(), "metrics".to_owned());
        assert_eq!(probe("startupProbe"), expected("/readyz"));
        assert_eq!(probe("readinessProbe"), expected("/readyz"));
        assert_eq!(probe("livenessProbe"), expected("/livez"));
        let port = |name: &str| {
            let mut ports = sidecar["ports"].as_sequence().expect("ports").iter();
            ports.find(|port| port["name"] == name).expect(name)["containerPort"].as_u64()
        };
        assert_eq!((port("http"), port("metrics")), (Some(8000), Some(9464)));
    }
}

#[test]
fn a_pod_is_granted_more_time_than_the_app_and_slidegate_take_to_end() {
    let config = root().join("k8s/sidecar/config.yaml");
    let config = Config::load(&config, &|_| Some("a secret".to_owned())).expect("accepted");
    let drain_and_grace = (config.server.drain_delay + config.server.grace).as_secs();
    for pod in pods()
        .into_iter()
        .filter(|pod| pod.file.contains("sidecar"))
    {
        let app = &pod.spec["containers"][0];
        let wait = app["lifecycle"]["preStop"]["sleep"]["seconds"]
            .as_u64()
            .expect("a wait");
        let granted = pod.spec["terminationGracePeriodSeconds"]
            .as_u64()
            .expect("a time");
        // What is left is the app's own.
        assert!(granted >= wait + drain_and_grace + 30, "{granted} s");
    }
}

#[test]
fn a_mounted_configuration_can_be_updated() {
    for pod in pods() {
        for container in pod.containers() {
            for mount in container["volumeMounts"]
                .as_sequence()
                .into_iter()
                .flatten()
            {
                assert!(mount["subPath"].is_null(), "{}", pod.file);
                assert!(mount["subPathExpr"].is_null(), "{}", pod.file);
            }
        }
    }
}

#[test]
fn every_config_map_holds_a_configuration_that_is_accepted_with_the_secret_and_not_without() {
    let files = yaml_files().into_iter();
    let files: Vec<_> = files.filter(|file| is_configuration(file)).collect();
    assert!(!files.is_empty());
    let secret = |name: &str| (name == "SLIDEGATE_SECRET").then(|| "a secret".to_owned());
    for file in files {
        let config = Config::load(&file, &secret).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.warnings, Vec::<String>::new());
        assert_eq!(
            (
                config.server.listen[0].address.tcp().expect("TCP").port(),
                config.server.metrics_listen.port()
            ),
            (8000, 9464)
        );
        assert!(
            Config::load(&file, &|_| None).is_err(),
            "started without a secret"
        );

        let kustomization = &documents(&file.with_file_name("kustomization.yaml"))[0];
        assert_eq!(
            kustomization["configMapGenerator"][0]["files"][0],
            "config.yaml"
        );
    }
}

#[test]
fn the_dashboard_and_the_rules_become_config_maps_that_grafana_and_prometheus_find() {
    let kustomization = &documents(&root().join("dashboards/kustomization.yaml"))[0];
    let maps = kustomization["configMapGenerator"].as_sequence();
    let mut files = Vec::new();
    for map in maps.expect("ConfigMaps") {
        let file = map["files"][0].as_str().expect("a file");
        assert!(root().join("dashboards").join(file).exists(), "{file}");
        files.push((file, map["options"]["labels"]["grafana_dashboard"].as_str()));
    }
    assert_eq!(
        files,
        [("slidegate.json", Some("1")), ("alerts.yaml", None)]
    );
    assert_eq!(
        kustomization["generatorOptions"]["disableNameSuffixHash"],
        true
    );
}

#[test]
fn the_operator_scrapes_the_metrics_of_the_pods_with_slidegate() {
    let monitor = &documents(&root().join("k8s/operator/pod-monitor.yaml"))[0];
    let deployment = &documents(&root().join("k8s/sidecar/deployment.yaml"))[0];
    assert_eq!(
        monitor["spec"]["selector"]["matchLabels"],
        deployment["spec"]["template"]["metadata"]["labels"]
    );
    let port = &monitor["spec"]["podMetricsEndpoints"][0]["port"];
    for sidecar in slidegates() {
        let mut ports = sidecar["ports"].as_sequence().expect("ports").iter();
        assert!(ports.any(|of| &of["name"] == port && of["containerPort"] == 9464));
    }
}

/// While Redis is away each proxy enforces its share, which is to be of as many as there are.
#[test]
fn the_configuration_expects_as_many_replicas_as_the_deployment_has() {
    let sidecar = root().join("k8s/sidecar");
    let deployment = &documents(&sidecar.join("deployment.yaml"))[0];
    let config = &documents(&sidecar.join("config.yaml"))[0];
    assert!(deployment["spec"]["replicas"].is_u64());
    assert_eq!(
        deployment["spec"]["replicas"],
        config["store"]["expected_replicas"]
    );
}

#[test]
fn the_image_is_built_by_the_pinned_toolchain_and_runs_as_the_user_of_the_manifests() {
    let dockerfile = fs::read_to_string(root().join("Dockerfile")).expect("Dockerfile");
    let lines: Vec<_> = dockerfile.lines().collect();
    let toolchain = fs::read_to_string(root().join("rust-toolchain.toml")).expect("a toolchain");
    let build = lines
        .iter()
        .find_map(|line| line.strip_prefix("FROM rust:"))
        .expect("a stage");
    let (version, _) = build.split_once('-').expect("a Debian release");
    assert!(
        toolchain.contains(&format!("channel = \"{version}.")),
        "{version}"
    );

    for pod in pods()
        .into_iter()
        .filter(|pod| pod.file.contains("sidecar"))
    {
        let user = pod.spec["securityContext"]["runAsUser"]
            .as_u64()
            .expect("a user");
        assert!(lines.contains(&format!("USER {user}:{user}").as_str()));
    }
    for line in [
        "STOPSIGNAL SIGTERM",
        r#"    CMD ["/usr/local/bin/slidegate", "healthcheck", "--config", "/etc/slidegate/config.yaml"]"#,
        "EXPOSE 8000 9464",
        r#"ENTRYPOINT ["/usr/local/bin/slidegate"]"#,
        r#"CMD ["run", "--config", "/etc/slidegate/config.yaml"]"#,
    ] {
        assert!(lines.contains(&line), "Dockerfile has no {line}");
    }
}

/// A pod that a manifest describes.
struct Pod {
    file: String,
    spec: Value,
}

impl Pod {
    fn containers(&self) -> Vec<&Value> {
        let lists = ["initContainers", "containers"].map(|list| self.spec[list].as_sequence());
        lists.into_iter().flatten().flatten().collect()
    }
}

/// At least two, or the walk is broken.
fn pods() -> Vec<Pod> {
    let mut pods = Vec::new();
    for (file, documents) in manifests() {
        for document in documents {
            let spec = document["spec"]["template"]["spec"].clone();
            if spec.is_mapping() {
                let file = file.display().to_string();
                pods.push(Pod { file, spec });
            }
        }
    }
    assert!(pods.len() >= 2, "found {}", pods.len());
    pods
}

fn slidegates() -> Vec<Value> {
    let mut found = Vec::new();
    for pod in pods() {
        let sidecars = pod.spec["initContainers"]
            .as_sequence()
            .into_iter()
            .flatten();
        found.extend(
            sidecars
                .filter(|container| container["name"] == "slidegate")
                .cloned(),
        );
    }
    assert!(!found.is_empty());
    found
}

/// Every file but slidegate's own configurations, with its documents.
fn manifests() -> Vec<(PathBuf, Vec<Value>)> {
    let files = yaml_files()
        .into_iter()
        .filter(|file| !is_configuration(file));
    files.map(|file| (file.clone(), documents(&file))).collect()
}

fn is_configuration(file: &Path) -> bool {
    file.ends_with("config.yaml")
}

fn documents(file: &Path) -> Vec<Value> {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let documents = serde_yaml::Deserializer::from_str(&text).map(Value::deserialize);
    documents
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn yaml_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut directories = vec![root().join("k8s")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "yaml")
            {
                files.push(path);
            }
        }
    }
    assert!(files.len() >= 7, "found {files:?}");
    files
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
