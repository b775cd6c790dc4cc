//! `slidegate explain`: what would become of a request by a configuration, on empty counters. Connects to nothing.

use std::{
    io::{self, Write},
    net::IpAddr,
    path::PathBuf,
};

use clap::Args;

use crate::{
    app,
    config::{Config, ConfigError, Environment},
    explain::{self, Explanation, PolicyExplanation, Question, QuestionError},
    upstream::UpstreamSettings,
};

/// Which request, by which configuration.
#[derive(Debug, Args)]
pub(super) struct Scenario {
    /// The configuration.
    #[arg(long, short, default_value = "config.yaml")]
    config: PathBuf,
    /// Method and target, as in 'GET /login'.
    #[arg(long, value_name = "REQUEST")]
    request: String,
    /// A header line, as in 'X-API-Key: k'; may be given several times. Others can read a command line: a made-up
    /// key is explained like a real one, unless identity.consumers lists keys.
    #[arg(long = "header", short = 'H', value_name = "LINE")]
    headers: Vec<String>,
    /// Who connects: the client, or a proxy before this one. Left out: a peer without an address.
    #[arg(long, value_name = "IP")]
    from: Option<IpAddr>,
    /// As JSON, as POST /explain of a running proxy answers.
    #[arg(long)]
    json: bool,
}

/// Why nothing was explained.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExplainError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("--{0}")]
    Question(#[from] QuestionError),
    #[error("the system grants no more resources: {0}")]
    Resources(io::Error),
    #[error("writing the result: {0}")]
    Output(#[from] io::Error),
}

/// Prints what would become of the request to `out`.
pub(super) fn explain(
    scenario: &Scenario,
    env: &Environment<'_>,
    out: &mut dyn Write,
) -> Result<(), ExplainError> {
    let config = Config::load(&scenario.config, env)?;
    let question = Question {
        request: scenario.request.clone(),
        headers: scenario.headers.clone(),
        from: scenario.from,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(ExplainError::Resources)?;
    let rules = app::rules_on_empty_counters(config);
    let explanation = runtime.block_on(explain::explain(&rules, &question))?;
    if scenario.json {
        let json = serde_json::to_string_pretty(&explanation).map_err(io::Error::from)?;
        writeln!(out, "{json}")?;
    } else {
        print(&explanation, out)?;
    }
    Ok(())
}

fn print(explanation: &Explanation, out: &mut dyn Write) -> io::Result<()> {
    let trusted = if explanation.peer_is_trusted {
        ", through a trusted proxy"
    } else {
        ""
    };
    writeln!(out, "client {}{trusted}", explanation.client)?;
    let answer = match (explanation.status, explanation.upstream.as_deref()) {
        (Some(status), _) => format!("answered {status}"),
        (None, None | Some(UpstreamSettings::DEFAULT_NAME)) => {
            "answered by the upstream".to_owned()
        }
        (None, Some(upstream)) => format!("answered by the upstream {upstream}"),
    };
    let because = explanation.because.iter();
    let because: String = because.map(|because| format!(", {because}")).collect();
    writeln!(out, "{}: {answer}{because}", explanation.outcome)?;
    for (name, value) in &explanation.headers {
        writeln!(out, "    {name}: {value}")?;
    }
    for policy in &explanation.policies {
        print_policy(policy, out)?;
    }
    Ok(())
}

fn print_policy(policy: &PolicyExplanation, out: &mut dyn Write) -> io::Result<()> {
    let shadow = if policy.mode == "shadow" {
        ", shadow"
    } else {
        ""
    };
    let standing = match (policy.matches, &policy.because) {
        (false, _) => "does not match".to_owned(),
        (true, Some(because)) => format!("matches, does not ask: {because}"),
        (true, None) => "asks".to_owned(),
    };
    writeln!(out, "policy {}{shadow}: {standing}", policy.policy)?;
    if let Some(identifier) = &policy.identifier {
        let source = policy.source.iter().map(|source| format!(", by {source}"));
        let plan = policy.plan.iter().map(|plan| format!(", plan {plan}"));
        let how: String = source.chain(plan).collect();
        writeln!(out, "    identifier    {identifier}{how}")?;
    }
    if let Some(cost) = policy.cost {
        writeln!(out, "    cost          {cost}")?;
    }
    for limit in &policy.limits {
        let (name, quota) = (&limit.name, &limit.limit);
        let says = match &limit.decision {
            None => "not asked".to_owned(),
            Some(decision) => {
                let verdict = if decision.allowed { "admits" } else { "denies" };
                let (estimate, remaining) = (decision.estimate, decision.remaining);
                format!("{verdict}, estimate {estimate:.2}, remaining {remaining}")
            }
        };
        writeln!(out, "    limit         {quota} as {name}: {says}")?;
    }
    Ok(())
}
