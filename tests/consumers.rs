//! Known keys: whose they are, in which plan, and what becomes of the others.

use std::{fs, io::Write as _, path::PathBuf, process::Stdio};

use slidegate::{
    config::Config,
    policy::{Identifier, IdentifierHasher},
};

use crate::support::{
    app::App,
    binary::{Binary, command, text},
    redis::{RedisServer, eventually},
    upstream::Upstream,
};

struct Setup {
    app: App,
    folder: tempfile::TempDir,
    upstream: Upstream,
}

impl Setup {
    fn new(rest: &str, consumers: &str) -> Self {
        let upstream = Upstream::start();
        let folder = tempfile::tempdir().expect("a folder");
        let path = write(&folder, &upstream, rest, consumers);
        let app = App::start_file(&path);
        Self {
            app,
            folder,
            upstream,
        }
    }

    async fn reload(&self, rest: &str, consumers: &str) {
        let path = write(&self.folder, &self.upstream, rest, consumers);
        self.app.reload_file(&path).await;
    }

    /// The status, and what remains, of a request with this key.
    async fn ask(&self, key: &str) -> (u16, Option<u64>) {
        self.app.ask("/", &[("x-api-key", key)]).await
    }
}

fn write(folder: &tempfile::TempDir, upstream: &Upstream, rest: &str, consumers: &str) -> PathBuf {
    let (path, list) = (
        folder.path().join("config.yaml"),
        folder.path().join("consumers.yaml"),
    );
    fs::write(&list, consumers).expect("written");
    let (address, list) = (upstream.address, text(&list));
    let config = format!("upstream: {{address: \"{address}\"}}\n{rest}").replace("LIST", list);
    fs::write(&path, config).expect("written");
    path
}

fn hash(key: &str) -> String {
    let hasher = IdentifierHasher::new(Some("s"), 64);
    let key = hasher.api_key(key.as_bytes()).expect("short");
    key.expect("a key").to_string()
}

fn list(entries: &[(&str, &str, &[&str])]) -> String {
    let entry = |(name, plan, keys): &(&str, &str, &[&str])| {
        let keys: Vec<String> = keys
            .iter()
            .map(|key| format!("\"{}\"", hash(key)))
            .collect();
        let plan = match *plan {
            "" => String::new(),
            plan => format!("  plan: {plan}\n"),
        };
        format!("- name: {name}\n{plan}  keys: [{}]\n", keys.join(", "))
    };
    let entries: String = entries.iter().map(entry).collect();
    format!("consumers:\n{entries}")
}

const PLANS: &str = "
identity: {secret: s, consumers: {file: LIST}}
policies:
  - name: per-key
    identifier: [header:x-api-key, header:authorization, client_ip]
    limits: [2/366d]
    plans: {gold: [9/366d], silver: [5/366d, 7/365d], internal: unlimited}
    overrides:
      - {consumer: [special], limits: [20/366d]}
";

fn everybody() -> String {
    list(&[
        ("acme", "gold", &["A1", "A2"]),
        ("bert", "gold", &["B"]),
        ("carl", "silver", &["C"]),
        ("dora", "", &["D"]),
        ("ours", "internal", &["O"]),
        ("special", "gold", &["S"]),
    ])
}

#[tokio::test]
async fn a_consumer_is_counted_by_its_name_with_the_limits_of_its_plan() {
    let setup = Setup::new(PLANS, &everybody());
    assert_eq!(setup.ask("A1").await, (200, Some(8)));
    assert_eq!(
        setup.ask("A2").await,
        (200, Some(7)),
        "one consumer, two keys"
    );
    assert_eq!(setup.ask("Bearer A1").await, (200, Some(6)));
    assert_eq!(
        setup.ask("B").await,
        (200, Some(8)),
        "a plan shares no counters"
    );
    assert_eq!(setup.ask("C").await, (200, Some(4)));
    assert_eq!(setup.ask("D").await, (200, Some(1)), "without a plan");
    assert_eq!(setup.ask("O").await, (200, None), "without a limit");
    assert_eq!(
        setup.ask("S").await,
        (200, Some(19)),
        "an override is before a plan"
    );
    let bearer = [("authorization", "Bearer A1")];
    assert_eq!(setup.app.ask("/", &bearer).await, (200, Some(5)));
}

#[tokio::test]
async fn decisions_are_told_by_plan_and_by_what_identified() {
    let setup = Setup::new(PLANS, &everybody());
    for key in ["A1", "A2", "C", "D", "unknown"] {
        setup.ask(key).await;
    }
    let by_plan = async |plan: &str| {
        let series = format!(
            "slidegate_decisions_total{{decided_by=\"store\",decision=\"allow\",mode=\"enforce\",plan=\"{plan}\",policy=\"per-key\"}}"
        );
        setup.app.metric(&series).await
    };
    let counts = [
        by_plan("gold").await,
        by_plan("silver").await,
        by_plan("").await,
    ];
    assert_eq!(counts, [2.0, 1.0, 2.0]);
    let by_source = async |source: &str| {
        let series =
            format!("slidegate_identified_total{{policy=\"per-key\",source=\"{source}\"}}");
        setup.app.metric(&series).await
    };
    assert_eq!(by_source("header:x-api-key").await, 4.0);
    assert_eq!(by_source("client_ip").await, 1.0);
}

/// Case b20.
#[tokio::test]
async fn keys_that_nobody_knows_mint_no_quota() {
    let setup = Setup::new(PLANS, &everybody());
    let mut statuses = Vec::new();
    for number in 1..=30 {
        statuses.push(setup.ask(&format!("rot-{number}")).await.0);
    }
    assert_eq!(statuses[..3], [200, 200, 429], "counted by address");
    assert!(statuses[3..].iter().all(|status| *status == 429));
    assert_eq!(setup.ask("A1").await, (200, Some(8)));
}

#[tokio::test]
async fn keys_that_nobody_knows_are_refused_where_the_policy_says_deny() {
    let rest = "
identity: {secret: s, consumers: {file: LIST, headers: [x-api-key]}}
policies: [{name: p, identifier: [header:x-api-key], missing_identifier: deny, limits: [9/366d]}]";
    let setup = Setup::new(rest, &list(&[("acme", "", &["A1"]), ("bert", "", &["B"])]));
    assert_eq!(setup.ask("unknown").await, (401, None));
    assert_eq!(
        setup.ask(&hash("A1")).await,
        (401, None),
        "a hash is no key"
    );
    assert_eq!(setup.ask("acme").await, (401, None), "nor is a name");
    assert_eq!(setup.ask("a1").await, (401, None), "nor in another case");
    assert_eq!(setup.ask("A1").await, (200, Some(8)));
    let twice = [("x-api-key", "A1"), ("x-api-key", "B")];
    assert_eq!(setup.app.ask("/", &twice).await, (400, None));
}

#[tokio::test]
async fn keys_are_looked_for_in_the_headers_that_are_set_and_other_values_are_as_they_are() {
    let rest = "
identity: {secret: s, consumers: {file: LIST, headers: [x-partner]}}
policies:
  - name: p
    identifier: [header:x-partner, header:x-api-key]
    missing_identifier: deny
    limits: [2/366d]
    plans: {gold: [9/366d]}";
    let setup = Setup::new(rest, &list(&[("acme", "gold", &["A1"])]));
    let partner = async |key| setup.app.ask("/", &[("x-partner", key)]).await;
    assert_eq!(partner("A1").await, (200, Some(8)));
    assert_eq!(partner("unknown").await, (401, None));
    assert_eq!(setup.ask("A1").await, (200, Some(1)), "a value, no key");
    assert_eq!(setup.ask("unknown").await, (200, Some(1)));
}

#[test]
fn a_consumer_that_a_setting_names_and_the_list_does_not_is_warned_of() {
    let (upstream, folder) = (Upstream::start(), tempfile::tempdir().expect("a folder"));
    let warnings = |entries: &[(&str, &str, &[&str])]| {
        let rest = format!("exempt: {{consumer: [bert]}}\n{PLANS}");
        let path = write(&folder, &upstream, &rest, &list(entries));
        let config = Config::load(&path, &|_| None).expect("accepted");
        let told = config.warnings.into_iter();
        told.filter(|warning| warning.contains("consumer"))
            .collect::<Vec<_>>()
    };
    let both: [(&str, &str, &[&str]); 2] = [("bert", "", &["B"]), ("special", "", &["S"])];
    assert_eq!(warnings(&both), [""; 0]);
    let expected = "policies[0].overrides[0].consumer: no consumer has the name special, so far";
    assert_eq!(warnings(&both[..1]), [expected]);
    let expected = "exempt.consumer: no consumer has the name bert, so far";
    assert_eq!(warnings(&both[1..]), [expected]);
}

#[tokio::test]
async fn a_rotated_key_and_a_changed_plan_keep_the_counters() {
    let setup = Setup::new(PLANS, &list(&[("acme", "gold", &["old"])]));
    assert_eq!(setup.ask("old").await, (200, Some(8)));
    let both = list(&[("acme", "gold", &["old", "new"])]);
    setup.reload(PLANS, &both).await;
    assert_eq!(setup.ask("new").await, (200, Some(7)));
    setup
        .reload(PLANS, &list(&[("acme", "silver", &["new"])]))
        .await;
    assert_eq!(setup.ask("new").await, (200, Some(2)));
    assert_eq!(setup.ask("old").await, (200, Some(1)), "by address");
}

#[tokio::test]
async fn a_file_that_is_put_into_the_list_is_read_again_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = folder.path().join("plan");
    fs::write(&plan, "gold").expect("written");
    let from_file = format!("${{file:{}}}", text(&plan));
    let consumers = list(&[("acme", &from_file, &["A1"])]);
    let setup = Setup::new(PLANS, &consumers);
    assert_eq!(setup.ask("A1").await, (200, Some(8)));
    fs::write(&plan, "silver").expect("written");
    setup.reload(PLANS, &consumers).await;
    assert_eq!(setup.ask("A1").await, (200, Some(3)));
}

#[tokio::test]
async fn a_consumer_is_a_part_of_what_is_counted_together() {
    let rest = "
identity: {secret: s, consumers: {file: LIST}}
policies:
  - name: p
    identifier: [[header:x-api-key, path]]
    missing_identifier: allow
    limits: [2/366d]
    plans: {gold: [5/366d]}";
    let both = [("acme", "gold", &["A1", "A2"][..]), ("dora", "", &["D"])];
    let setup = Setup::new(rest, &list(&both));
    let ask = async |key, path| setup.app.ask(path, &[("x-api-key", key)]).await;
    assert_eq!(ask("A1", "/a").await, (200, Some(4)));
    assert_eq!(ask("A2", "/a").await, (200, Some(3)));
    assert_eq!(ask("A2", "/b").await, (200, Some(4)));
    assert_eq!(ask("D", "/a").await, (200, Some(1)));
    assert_eq!(ask("unknown", "/a").await, (200, None));
}

#[tokio::test]
async fn no_policy_asks_about_an_exempt_consumer() {
    let rest = format!("exempt: {{consumer: [bert]}}\n{PLANS}");
    let setup = Setup::new(&rest, &everybody());
    for _ in 0..12 {
        assert_eq!(setup.ask("B").await, (200, None));
    }
    assert_eq!(setup.ask("A1").await, (200, Some(8)));
    let bearer = [("authorization", "Bearer B")];
    assert_eq!(setup.app.ask("/", &bearer).await, (200, None));
    let two = [("x-api-key", "B"), ("x-api-key", "A1")];
    assert_eq!(setup.app.ask("/", &two).await, (400, None));
    let hidden = [("x-api-key", "B"), ("connection", "x-api-key")];
    assert_eq!(setup.app.ask("/", &hidden).await, (400, None));
}

#[test]
fn faults_of_the_file_have_their_place_in_it_and_never_a_key() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().expect("a folder");
    let faults = |rest: &str, consumers: &str| {
        let path = write(&folder, &upstream, rest, consumers);
        let error = Config::load(&path, &|_| None).expect_err("refused");
        error.to_string().replace(text(folder.path()), "FOLDER")
    };
    let a = hash("A");
    let listed = format!(
        "consumers:\n\
         - {{name: acme, plan: glod, keys: [\"{a}\"]}}\n\
         - {{name: acme, keys: [hunter2-in-the-clear]}}\n\
         - {{name: \"a b\", keys: [\"{a}\"], limit: 3}}\n\
         - {{plan: gold}}\n"
    );
    assert_eq!(
        faults(PLANS, &listed),
        "FOLDER/consumers.yaml:2:22: consumers[0].plan: found \"glod\"; policies have limits for gold, internal, silver\n    \
         hint: did you mean gold?\n\
         FOLDER/consumers.yaml:3:10: consumers[1].name: found \"acme\"; names are unique, and consumers[0] has this one\n\
         FOLDER/consumers.yaml:3:23: consumers[1].keys[0]: found a value (not shown, it may hold a secret); the hash of a key is 22 characters\n    \
         hint: slidegate hash-key prints it\n\
         FOLDER/consumers.yaml:4:10: consumers[2].name: found \"a b\"; a consumer's name is 1 to 64 letters, digits and . _ @ -\n\
         FOLDER/consumers.yaml:4:24: consumers[2].keys[0]: found a value (not shown, it may hold a secret); each key belongs to one consumer, and consumers[0] has this one\n\
         FOLDER/consumers.yaml:4:51: consumers[2].limit: unknown key; known here: name, plan, keys\n\
         FOLDER/consumers.yaml:5:3: consumers[3].name: missing; write for instance name: acme\n\
         FOLDER/consumers.yaml:5:3: consumers[3].keys: missing; write for instance keys: [0jNS3U2sIFZAFWrfXgW2jA]"
    );
    let lone = "consumers:\n- {name: acme, keys: hunter2-in-the-clear}\n";
    assert_eq!(
        faults(PLANS, lone),
        "FOLDER/consumers.yaml:2:22: consumers[0].keys: found a single value; expected a list of at least one, as in [0jNS3U2sIFZAFWrfXgW2jA]"
    );
    let both = faults(
        &PLANS.replace("limits: [2/366d]", "limts: [2/366d]"),
        "x: 1\n",
    );
    for told in ["config.yaml:7:", "consumers.yaml:1:1: x: unknown key"] {
        assert!(both.contains(told), "{told}: {both}");
    }
    let absent = PLANS.replace("LIST", "/nowhere/consumers.yaml");
    assert_eq!(
        faults(&absent, ""),
        "/nowhere/consumers.yaml: cannot be read: No such file or directory (os error 2)"
    );
    let path = write(&folder, &upstream, PLANS, "consumers: []\n");
    let nobody = Config::load(&path, &|_| None).expect("accepted");
    assert!(nobody.consumers.all().is_empty());
}

/// What `hash-key` prints when it is given a key.
fn hash_key(config: &str, arguments: &[&str], key: &str) -> (String, String, Option<i32>) {
    let mut command = command(&[&["hash-key", "--config", config], arguments].concat());
    command.stdin(Stdio::piped());
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.expect("it runs");
    let mut stdin = child.stdin.take().expect("piped");
    // It may end without reading.
    drop(stdin.write_all(key.as_bytes()));
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let told = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (
        told(output.stdout),
        told(output.stderr),
        output.status.code(),
    )
}

#[tokio::test]
async fn an_entry_that_hash_key_prints_makes_the_key_known_while_the_proxy_runs() {
    let upstream = Upstream::start();
    let lists = tempfile::tempdir().expect("a folder");
    let list = lists.path().join("consumers.yaml");
    fs::write(&list, "consumers: []\n").expect("written");
    let address = upstream.address;
    let rest = format!("upstream: {{address: \"{address}\"}}\n{PLANS}");
    let binary = Binary::start(&rest.replace("LIST", text(&list)));
    let config = binary.folder().join("config.yaml");
    let arguments = ["--name", "acme", "--plan", "gold"];
    let (entry, warned, code) = hash_key(text(&config), &arguments, "hunter2\n");
    assert_eq!((warned.as_str(), code), ("", Some(0)));
    let expected = format!(
        "- name: acme\n  plan: gold\n  keys: [\"{}\"]\n",
        hash("hunter2")
    );
    assert_eq!(entry, expected);
    fs::write(&list, format!("consumers:\n{entry}")).expect("written");
    eventually("the key is known", async || {
        let request = reqwest::Client::new().get(binary.url("/"));
        let response = request.header("x-api-key", "hunter2").send().await;
        response.expect("answered").headers()["x-ratelimit-limit"] == "9"
    })
    .await;
    assert!(!binary.log().contains("hunter2"));
}

#[test]
fn hash_key_needs_no_list_and_tells_nothing_of_a_key_that_it_cannot_take() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = Upstream::start();
    let path = write(&folder, &upstream, &PLANS.replace("secret: s, ", ""), "");
    fs::remove_file(folder.path().join("consumers.yaml")).expect("removed");
    let config = text(&path);
    let (entry, warned, code) = hash_key(config, &[], "hunter2");
    let held = entry.trim_start_matches("- name: NAME\n  keys: [\"");
    assert!(
        held.trim_end_matches("\"]\n").parse::<Identifier>().is_ok(),
        "{entry}"
    );
    assert_eq!(code, Some(0));
    assert!(warned.contains("identity.secret is not set"), "{warned}");
    for (arguments, key, told) in [
        (&["hunter2"][..], "", "others can read a command line"),
        (&[], "", "standard input: holds no key"),
        (&[], "hunter2\nhunter3\n", "a key is one line"),
        (&["--name", "a b"], "hunter2", "--name: found \"a b\""),
        (&["--plan", "Gold"], "hunter2", "--plan: found \"Gold\""),
    ] {
        let (out, error, code) = hash_key(config, arguments, key);
        assert_eq!(
            (out.as_str(), code),
            ("", Some(2)),
            "{arguments:?}: {error}"
        );
        assert!(error.contains(told), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn a_consumer_is_looked_up_by_its_name_or_any_of_its_keys() {
    let redis = RedisServer::start();
    let rest = format!("store: {{url: \"{}\", budget: 10s}}\n{PLANS}", redis.url());
    let setup = Setup::new(&rest, &everybody());
    setup.app.store_decides().await;
    assert_eq!(setup.ask("C").await, (200, Some(4)));
    let config = setup.folder.path().join("config.yaml");
    let inspect = |arguments: &[&str]| {
        let arguments = [&["inspect", "--config", text(&config)], arguments].concat();
        let output = command(&arguments).output().expect("it runs");
        String::from_utf8(output.stdout).expect("text")
    };
    let told = inspect(&["--consumer", "carl"]);
    assert!(told.contains("per-key-366d  5/366d"), "{told}");
    assert!(told.contains("per-key-365d  7/365d"), "{told}");
    let key = setup.folder.path().join("key");
    fs::write(&key, "C\n").expect("written");
    let by_key = inspect(&["--key-file", text(&key)]);
    let identifier = |told: &str| told.lines().next().map(str::to_owned);
    assert_eq!(identifier(&by_key), identifier(&told));
    let forget = ["forget", "--config", text(&config), "--consumer", "carl"];
    assert!(command(&forget).output().expect("it runs").status.success());
    setup.reload(&rest, &everybody()).await;
    let told = inspect(&["--consumer", "carl"]);
    assert!(told.contains("Nothing is counted"), "{told}");
}

/// The table of `docs/upgrade.md`, line by line: what is said to stay or to begin anew is looked at here, by a client
/// that has used one of nine.
#[tokio::test]
async fn a_new_configuration_keeps_the_counters_that_the_document_says_it_keeps() {
    let policy = |name: &str, window: &str, rest: &str| {
        format!(
            "policies: [{{name: {name}, identifier: [header:x-api-key], limits: [9/{window}], {rest}}}]"
        )
    };
    let consumers = list(&[("acme", "gold", &["K"])]);
    let gold = "plans: {gold: [9/366d]}";
    let before = policy("p", "366d", gold);
    let identity =
        |secret: &str| format!("identity: {{secret: {secret}, consumers: {{file: LIST}}}}\n");
    let with = |rest: &str| policy("p", "366d", &format!("{gold}, {rest}"));
    let stay = [
        ("limit", policy("p", "366d", gold).replace("9/", "12/"), 10),
        ("another algorithm", with("algorithm: fixed_window"), 7),
        ("plans", policy("p", "366d", "plans: {gold: [20/366d]}"), 18),
        (
            "overrides",
            with("overrides: [{consumer: [acme], limits: [30/366d]}]"),
            28,
        ),
        ("cost", with("cost: 3"), 5),
        ("match", with("match: {path: [/]}"), 7),
    ];
    let anew = [
        ("window", before.replace("366d", "365d"), 8),
        ("sliding_log", with("algorithm: sliding_log"), 8),
        ("name", policy("q", "366d", gold), 8),
        (
            "identifies",
            before.replace("[header:x-api-key]", "[[header:x-api-key, client_ip]]"),
            8,
        ),
    ];
    let document = include_str!("../docs/upgrade.md");
    for (line_ends, cases) in [("| stay |", &stay[..]), ("new ones", &anew[..])] {
        let rows = document.lines().filter(|line| line.starts_with("| "));
        let rows: String = rows.filter(|line| line.contains(line_ends)).collect();
        for (what, after, remaining) in cases {
            assert!(rows.contains(what), "{what} is not said: {rows}");
            let setup = Setup::new(&format!("{}{before}", identity("s")), &consumers);
            assert_eq!(setup.ask("K").await, (200, Some(8)));
            setup
                .reload(&format!("{}{after}", identity("s")), &consumers)
                .await;
            let applied = "slidegate_config_reloads_total{result=\"applied\"}";
            assert_eq!(setup.app.metric(applied).await, 1.0, "{what}");
            assert_eq!(setup.ask("K").await, (200, Some(*remaining)), "{what}");
        }
        for what in rows.split('`').skip(1).step_by(2) {
            // Wants a restart: other counters from the start.
            let apart = ["identity.secret", "store.namespace"].contains(&what);
            let is_tried = cases.iter().any(|(name, ..)| *name == what);
            assert!(is_tried || apart, "{what} is said, and tried by nobody");
        }
    }
}
