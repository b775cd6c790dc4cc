//! What the image and the manifests under `k8s/` promise a cluster: no root, nothing written, probes that
//! mean what they should, an end within the time granted.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde::Deserialize as _;
use serde_yaml::Value;
use slidegate::config::Config;

use crate::support::{skip::skip, snapshot::agrees};

/// What a cluster is given, each with its rendering beside the snapshots.
const APPLIED: [&str; 5] = [
    "edge",
    "monitoring",
    "redis",
    "sidecar",
    "sidecar-as-container",
];

#[test]
fn the_renderings_are_what_kubectl_makes_of_the_manifests() {
    let kubectl = |arguments: &[&str]| {
        let output = Command::new("kubectl").args(arguments).output();
        output.ok().filter(|output| output.status.success())
    };
    // Components are known since kubectl 1.21.
    let renders = kubectl(&["kustomize", "k8s/sidecar"]).is_some();
    if !renders {
        skip("no kubectl that knows components: nobody rendered the manifests anew");
        return;
    }
    for directory in APPLIED {
        let path = root().join("k8s").join(directory);
        let output = kubectl(&["kustomize", path.to_str().expect("a path")]);
        let output = output.unwrap_or_else(|| panic!("{directory}"));
        let rendered = String::from_utf8(output.stdout).expect("text");
        let known = fs::read_to_string(rendering(directory)).unwrap_or_default();
        // Versions of kubectl differ in how they write the same.
        if parsed(&rendered) != parsed(&known) || known.is_empty() {
            agrees(&format!("tests/snapshots/k8s/{directory}.yaml"), &rendered);
        }
    }
}

/// As `docs/sidecar.md` tells it: the Deployment and the Service are those of `k8s/sidecar`, the limits one's own.
#[test]
fn the_component_goes_before_an_app_by_the_lines_that_are_shown() {
    let document = fs::read_to_string(root().join("docs/sidecar.md")).expect("a document");
    let mut blocks = document.split("```yaml\n").skip(1);
    let mut block = || {
        let block = blocks.next().and_then(|block| block.split_once("```"));
        block.expect("a block, and its end").0
    };
    let (shown, limits) = (block(), block());
    assert!(limits.starts_with("# limits/kustomization.yaml\n"));
    let readme = fs::read_to_string(root().join("README.md")).expect("a document");
    let component = "components:\n  - ../slidegate/k8s/component\n";
    assert!(shown.contains(component) && readme.contains(component));

    let own = "upstream: {address: \"127.0.0.1:3000\"}\npolicies: [{name: own, limits: [7/1m]}]\n";
    let app = OwnApp::new(&[
        ("limits/kustomization.yaml", limits),
        ("limits/config.yaml", own),
    ]);
    let Some(documents) = app.rendered(shown) else {
        skip("no kubectl that knows components: nobody put the component before an app");
        return;
    };
    let spec = &one(&documents, "Deployment")["spec"]["template"]["spec"];
    let [proxy, migration] = &spec["initContainers"].as_sequence().expect("two")[..] else {
        panic!("{spec:?}");
    };
    assert_eq!(proxy["name"], "slidegate");
    assert_eq!(proxy["restartPolicy"], "Always");
    assert_eq!(migration["name"], "migration");
    assert_eq!(one(&documents, "ConfigMap")["data"]["config.yaml"], own);
    let service = one(&documents, "Service");
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 8000);

    // Before 1.29.
    assert!(document.contains("name `../slidegate/k8s/as-container` after the component"));
    let both = format!("{component}  - ../slidegate/k8s/as-container\n");
    let documents = app.rendered(&shown.replace(component, &both));
    let documents = documents.expect("as before");
    let spec = &one(&documents, "Deployment")["spec"]["template"]["spec"];
    let names = |kind: &str| -> Vec<_> {
        let containers = spec[kind].as_sequence().expect("containers").iter();
        containers
            .map(|container| container["name"].as_str().expect("a name"))
            .collect()
    };
    assert_eq!(names("containers"), ["slidegate", "app"]);
    assert_eq!(names("initContainers"), ["migration"]);
    let proxy = &spec["containers"][0];
    assert!(proxy["restartPolicy"].is_null());
    assert_eq!(proxy["ports"][0]["containerPort"], 8000);
    assert_eq!(proxy["image"], "slidegate:0.1.0");
}

/// A folder with an app of somebody's own, that has a container for its start, and slidegate's repository beside it.
struct OwnApp(tempfile::TempDir);

impl OwnApp {
    /// With more files of its own.
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let app = folder.path().join("app");
        let deployment = fs::read_to_string(root().join("k8s/sidecar/deployment.yaml"));
        let deployment = deployment.expect("a deployment").replace(
            "      containers:\n",
            "      initContainers: [{name: migration, image: migration}]\n      containers:\n",
        );
        let service = fs::read_to_string(root().join("k8s/sidecar/service.yaml"));
        let service = service.expect("a service");
        let own = [
            ("deployment.yaml", &*deployment),
            ("service.yaml", &*service),
        ];
        for (name, text) in own.iter().chain(files) {
            let path = app.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("written");
        }
        let slidegate = folder.path().join("slidegate");
        fs::create_dir(&slidegate).expect("a folder");
        // kubectl follows no link out of a folder.
        let copied = Command::new("cp")
            .arg("-r")
            .args([&root().join("k8s"), &slidegate])
            .status();
        assert!(copied.expect("cp runs").success());
        Self(folder)
    }

    /// What kubectl makes of a kustomization of its; `None` where there is no kubectl that knows components.
    fn rendered(&self, kustomization: &str) -> Option<Vec<Value>> {
        let app = self.0.path().join("app");
        fs::write(app.join("kustomization.yaml"), kustomization).expect("written");
        let kubectl = |folder: &Path| {
            Command::new("kubectl")
                .arg("kustomize")
                .arg(folder)
                .output()
        };
        // They are known since kubectl 1.21.
        let known = kubectl(&root().join("k8s/sidecar"));
        if !known.is_ok_and(|output| output.status.success()) {
            return None;
        }
        let rendered = kubectl(&app).expect("it runs");
        let told = String::from_utf8_lossy(&rendered.stderr);
        assert!(rendered.status.success(), "{told}");
        let text = String::from_utf8(rendered.stdout).expect("text");
        Some(parsed(&text).expect("YAML"))
    }
}

/// The only document of this kind.
fn one<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    let mut found = documents.iter().filter(|document| document["kind"] == kind);
    let one = found.next().expect(kind);
    assert!(found.next().is_none(), "{kind}");
    one
}

/// Those of its own resources; what belongs to the operator is a custom one.
#[test]
fn kubernetes_knows_every_field_of_the_renderings() {
    let validate = |arguments: &[&str]| {
        Command::new("python3")
            .args(["-m", "kubernetes_validate"])
            .args(arguments)
            .output()
    };
    if !validate(&["--version"]).is_ok_and(|output| output.status.success()) {
        skip("no kubernetes-validate: nobody held the manifests against the schemas of Kubernetes");
        return;
    }
    for directory in APPLIED {
        let file = rendering(directory);
        let file = file.to_str().expect("a path");
        for version in [&["-k", "1.29"][..], &[]] {
            let output = validate(&[version, &["--strict", file]].concat()).expect("it runs");
            let told = [output.stdout, output.stderr].concat();
            let told = String::from_utf8_lossy(&told);
            assert!(output.status.success(), "{told}");
            let unknown = told.lines().filter(|line| line.starts_with("WARN"));
            assert_eq!(
                unknown.count(),
                if directory == "monitoring" { 2 } else { 0 },
                "{told}"
            );
        }
    }
}

/// By models made of its custom resources' own schemas (npm's @kubernetes-models/prometheus-operator).
#[test]
fn the_resources_of_the_prometheus_operator_are_what_its_schemas_want() {
    let node = |script: &str, input: &str| {
        let mut child = Command::new("node")
            .args(["--input-type=module", "--eval", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        let mut stdin = child.stdin.take().expect("it is piped");
        // It may have failed before it read.
        drop(stdin.write_all(input.as_bytes()));
        drop(stdin);
        Some(child.wait_with_output().expect("it ends"))
    };
    let global = Command::new("npm").args(["root", "--global"]).output();
    let global = global.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    );
    let models = Path::new(&global).join("@kubernetes-models/prometheus-operator");
    if !models.exists() {
        skip(
            "no @kubernetes-models/prometheus-operator: nobody held the operator's resources against its schemas",
        );
        return;
    }
    let script = format!(
        "import {{ readFileSync }} from 'node:fs';\n\
         const resource = JSON.parse(readFileSync(0));\n\
         const models = await import(`{}/${{resource.apiVersion}}/${{resource.kind}}.js`);\n\
         new models[resource.kind](resource).validate();",
        models.display()
    );
    let resources = documents(&rendering("monitoring"));
    let own = resources
        .iter()
        .filter(|document| document["kind"] != "ConfigMap");
    let mut found = 0;
    for resource in own {
        found += 1;
        let told = |resource: &Value| {
            let json = serde_json::to_string(resource).expect("JSON");
            let output = node(&script, &json).expect("it ran before");
            (
                output.status.success(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )
        };
        let (is_valid, why) = told(resource);
        assert!(is_valid, "{why}");
        // It would tell of what is none. It lets pass what it does not know.
        let mut other = resource.clone();
        for list in ["podMetricsEndpoints", "groups"] {
            other["spec"][list] = "none".into();
        }
        assert!(!told(&other).0, "{other:?}");
    }
    assert_eq!(found, 2);
}

#[test]
fn every_manifest_is_used_and_there_is_each_kind_that_is_promised() {
    for file in yaml_files() {
        let name = file.file_name().expect("a file").to_string_lossy();
        if name == "kustomization.yaml" {
            continue;
        }
        let list =
            fs::read_to_string(file.with_file_name("kustomization.yaml")).expect("beside it");
        let is_used = [format!("- {name}\n"), format!("path: {name}\n")];
        assert!(
            is_used.iter().any(|line| list.contains(line)),
            "{} is not used",
            file.display()
        );
    }
    let kinds: BTreeSet<_> = manifests()
        .into_iter()
        .flat_map(|(_, documents)| documents)
        .map(|document| document["kind"].as_str().expect("a kind").to_owned())
        .collect();
    let kinds: Vec<_> = kinds.iter().map(String::as_str).collect();
    assert_eq!(
        kinds,
        [
            "ConfigMap",
            "Deployment",
            "HorizontalPodAutoscaler",
            "NetworkPolicy",
            "PodDisruptionBudget",
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
        for container in pod.containers() {
            let image = container["image"].as_str().expect("an image");
            let tag = image.rsplit_once(':').map(|(_, tag)| tag);
            assert!(tag.is_some_and(|tag| tag != "latest"), "{image}");
        }
    }
}

#[test]
fn slidegate_is_a_native_sidecar_that_nothing_ends_early() {
    for pod in pods() {
        let native = pod.spec["initContainers"].as_sequence();
        let is_native = native.is_some_and(|containers| {
            containers.iter().any(|container| {
                container["name"] == "slidegate" && container["restartPolicy"] == "Always"
            })
        });
        assert_eq!(is_native, pod.file == "sidecar", "{}", pod.file);
    }
    for sidecar in slidegates() {
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
        let expected = |path: &str| (path.to_owned(), "proxy-metrics".to_owned());
        assert_eq!(probe("startupProbe"), expected("/readyz"));
        assert_eq!(probe("readinessProbe"), expected("/readyz"));
        assert_eq!(probe("livenessProbe"), expected("/livez"));
        let port = |name: &str| {
            let mut ports = sidecar["ports"].as_sequence().expect("ports").iter();
            ports.find(|port| port["name"] == name).expect(name)["containerPort"].as_u64()
        };
        assert_eq!(
            (port("proxy"), port("proxy-metrics")),
            (Some(8000), Some(9464))
        );
    }
}

#[test]
fn a_pod_is_granted_more_time_than_the_app_and_slidegate_take_to_end() {
    for (directory, config) in [("sidecar", "component"), ("edge", "edge")] {
        let config = root().join("k8s").join(config).join("config.yaml");
        let config = Config::load(&config, &|_| Some("a secret".to_owned())).expect("accepted");
        let drain_and_grace = (config.server.drain_delay + config.server.grace).as_secs();
        let pods = pods().into_iter().filter(|pod| pod.file == directory);
        for pod in pods {
            let app = &pod.spec["containers"][0];
            let wait = app["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64();
            let granted = pod.spec["terminationGracePeriodSeconds"]
                .as_u64()
                .expect("a time");
            // What is left is the app's own.
            let own = if directory == "edge" { 10 } else { 30 };
            let least = wait.unwrap_or(0) + drain_and_grace + own;
            assert!(granted >= least, "{directory}: {granted} s");
            assert_eq!(wait.is_some(), directory == "sidecar");
        }
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
    let monitor = &documents(&root().join("k8s/monitoring/pod-monitor.yaml"))[0];
    let wanted = monitor["spec"]["selector"]["matchLabels"].as_mapping();
    let wanted = wanted.expect("labels");
    for directory in ["sidecar", "sidecar-as-container", "edge"] {
        let deployment = of_kind(directory, "Deployment");
        let labels = &deployment["spec"]["template"]["metadata"]["labels"];
        for (label, value) in wanted {
            assert_eq!(labels.get(label), Some(value), "{directory}");
        }
        // Of which the job is made.
        assert!(labels["app.kubernetes.io/name"].is_string(), "{directory}");
    }
    let port = &monitor["spec"]["podMetricsEndpoints"][0]["port"];
    for sidecar in slidegates() {
        let mut ports = sidecar["ports"].as_sequence().expect("ports").iter();
        assert!(ports.any(|of| &of["name"] == port && of["containerPort"] == 9464));
    }
}

/// However slowly clients read: docs/listeners.md tells what a connection of such a one takes.
#[test]
fn the_memory_of_a_pod_has_room_for_all_connections() {
    for (directory, config) in [("sidecar", "component"), ("edge", "edge")] {
        let config = root().join("k8s").join(config).join("config.yaml");
        let config = Config::load(&config, &|_| Some("a secret".to_owned())).expect("accepted");
        // Of the proxy by itself, and of the store behind failure_mode local.
        let needed = 125.0 + 1.3 * config.server.census.connections as f64;
        let pod = pods().into_iter().find(|pod| pod.file == directory);
        let pod = pod.expect(directory);
        for sidecar in pod
            .containers()
            .into_iter()
            .filter(|of| of["name"] == "slidegate")
        {
            let limit = sidecar["resources"]["limits"]["memory"]
                .as_str()
                .expect("a limit");
            let (number, unit) = limit.split_at(limit.len() - 2);
            let unit = match unit {
                "Mi" => 1.048_576,
                "Gi" => 1_073.741_824,
                _ => panic!("{limit}"),
            };
            let megabytes = number.parse::<f64>().expect("a number") * unit;
            assert!(needed <= megabytes, "{directory}: {needed} MB of {limit}");
        }
    }
}

/// While Redis is away each proxy enforces its share, which is to be of as many as there are, or at least are.
#[test]
fn the_configuration_expects_as_many_replicas_as_there_are() {
    let expected = |directory: &str| {
        let file = root().join("k8s").join(directory).join("config.yaml");
        documents(&file)[0]["store"]["expected_replicas"].as_u64()
    };
    let deployment = of_kind("sidecar", "Deployment");
    assert!(deployment["spec"]["replicas"].is_u64());
    assert_eq!(
        deployment["spec"]["replicas"].as_u64(),
        expected("component")
    );
    let autoscaler = of_kind("edge", "HorizontalPodAutoscaler");
    assert!(autoscaler["spec"]["minReplicas"].is_u64());
    assert_eq!(autoscaler["spec"]["minReplicas"].as_u64(), expected("edge"));
    // Else each rollout would set it back.
    assert!(of_kind("edge", "Deployment")["spec"]["replicas"].is_null());
}

#[test]
fn a_rollout_leaves_the_edge_with_no_fewer_pods_than_before() {
    let deployment = of_kind("edge", "Deployment");
    let update = &deployment["spec"]["strategy"]["rollingUpdate"];
    assert_eq!(update["maxUnavailable"], 0);
}

/// A Redis without a password is for the proxies, and for nobody else.
#[test]
fn redis_lets_in_every_pod_with_a_proxy_and_no_other() {
    let policy = of_kind("redis", "NetworkPolicy");
    let rules = policy["spec"]["ingress"].as_sequence().expect("rules");
    let [rule] = &rules[..] else {
        panic!("{rules:?}");
    };
    let allowed = &rule["from"][0]["podSelector"]["matchLabels"];
    assert_eq!(rule["from"].as_sequence().map(Vec::len), Some(1));
    let allowed = allowed.as_mapping().expect("labels");
    assert_eq!(allowed.len(), 1);
    for directory in ["sidecar", "sidecar-as-container", "edge"] {
        let pod = &of_kind(directory, "Deployment")["spec"]["template"]["metadata"]["labels"];
        for (label, value) in allowed {
            assert_eq!(pod.get(label), Some(value), "{directory}");
        }
    }
    let redis = &of_kind("redis", "Deployment")["spec"]["template"]["metadata"]["labels"];
    for label in allowed.keys() {
        assert_eq!(redis.get(label), None);
    }
}

#[test]
fn clients_reach_the_proxy_s_port_by_their_own_address_at_the_edge() {
    let service = of_kind("edge", "Service");
    assert_eq!(service["spec"]["externalTrafficPolicy"], "Local");
    for directory in ["edge", "sidecar", "sidecar-as-container"] {
        let service = of_kind(directory, "Service");
        let pod = of_kind(directory, "Deployment");
        let labels = &pod["spec"]["template"]["metadata"]["labels"];
        let wanted = service["spec"]["selector"].as_mapping();
        for (label, value) in wanted.expect("labels") {
            assert_eq!(labels.get(label), Some(value), "{directory}");
        }
        // Before Kubernetes 1.33 Services do not know the names of a native sidecar's ports.
        let port = &service["spec"]["ports"][0]["targetPort"];
        let is_regular = directory == "edge";
        assert!(
            *port == 8000 || is_regular && *port == "proxy",
            "{directory}"
        );
    }
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

    for pod in pods().into_iter().filter(|pod| pod.file != "redis") {
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

#[test]
fn the_image_has_what_the_document_says_and_nothing_else() {
    let dockerfile = fs::read_to_string(root().join("Dockerfile")).expect("Dockerfile");
    let (_, last) = dockerfile.rsplit_once("\nFROM ").expect("two stages");
    let base = last.lines().next().expect("a name");
    let adding = ["RUN ", "COPY ", "ADD "];
    let added: Vec<_> = last
        .lines()
        .filter(|line| adding.iter().any(|word| line.starts_with(word)))
        .collect();
    assert_eq!(
        added,
        [
            "COPY --from=build /build/slidegate /usr/local/bin/slidegate",
            "COPY config.yaml /etc/slidegate/config.yaml",
        ]
    );
    let document = fs::read_to_string(root().join("docs/sidecar.md")).expect("a document");
    let said = format!("Debian (`{base}`), the binary");
    assert!(document.contains(&said), "{said}");
    assert!(document.contains("`config.yaml` as `/etc/slidegate/config.yaml`"));
}

/// None but x86-64 is built here, so that nothing else would notice.
#[test]
fn nothing_keeps_the_image_from_another_architecture() {
    let dockerfile = fs::read_to_string(root().join("Dockerfile")).expect("Dockerfile");
    let instructions: Vec<_> = dockerfile
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert!(instructions.len() >= 20, "{instructions:?}");
    // A digest is of one architecture's image, where it is not of a list of them: nobody sees which.
    for word in [
        "x86",
        "amd64",
        "arm64",
        "aarch64",
        "--platform",
        "target-cpu",
        "@sha256",
    ] {
        let with_it: Vec<_> = instructions
            .iter()
            .filter(|line| line.contains(word))
            .collect();
        assert!(with_it.is_empty(), "{word}: {with_it:?}");
    }
    // Where Cargo would be told what to build for.
    assert!(!root().join(".cargo").exists());

    let pods = pods();
    assert!(pods.len() >= 3, "found {}", pods.len());
    for pod in pods {
        assert!(pod.spec["nodeSelector"].is_null(), "{}", pod.file);
    }
}

/// A pod that a rendering describes.
struct Pod {
    /// What was rendered.
    file: String,
    spec: Value,
}

impl Pod {
    fn containers(&self) -> Vec<&Value> {
        let lists = ["initContainers", "containers"].map(|list| self.spec[list].as_sequence());
        lists.into_iter().flatten().flatten().collect()
    }
}

fn pods() -> Vec<Pod> {
    let mut pods = Vec::new();
    for (directory, documents) in manifests() {
        for document in documents {
            let spec = document["spec"]["template"]["spec"].clone();
            if spec.is_mapping() {
                let file = directory.to_owned();
                pods.push(Pod { file, spec });
            }
        }
    }
    assert_eq!(pods.len(), 4);
    pods
}

/// The proxy's containers.
fn slidegates() -> Vec<Value> {
    let pods = pods();
    let containers = pods.iter().flat_map(Pod::containers);
    let found: Vec<_> = containers
        .filter(|container| container["name"] == "slidegate")
        .cloned()
        .collect();
    assert_eq!(found.len(), 3);
    found
}

fn manifests() -> Vec<(&'static str, Vec<Value>)> {
    let all = APPLIED.map(|directory| (directory, documents(&rendering(directory))));
    all.into()
}

/// The only one of its kind there.
fn of_kind(directory: &str, kind: &str) -> Value {
    let documents = documents(&rendering(directory)).into_iter();
    let mut found: Vec<_> = documents
        .filter(|document| document["kind"] == kind)
        .collect();
    assert_eq!(found.len(), 1, "{directory}: {kind}");
    found.remove(0)
}

fn rendering(directory: &str) -> PathBuf {
    root()
        .join("tests/snapshots/k8s")
        .join(directory)
        .with_extension("yaml")
}

fn is_configuration(file: &Path) -> bool {
    file.ends_with("config.yaml")
}

fn documents(file: &Path) -> Vec<Value> {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    parsed(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn parsed(text: &str) -> Result<Vec<Value>, String> {
    let documents = serde_yaml::Deserializer::from_str(text).map(Value::deserialize);
    documents
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())
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
