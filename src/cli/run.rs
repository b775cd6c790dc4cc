//! `slidegate run`: serve until told to stop.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use super::{CommandError, environment, log};
use crate::{
    app::{self, AppError, Configs, Listeners, RunEnd, World},
    clock::Clock,
    config::{Config, ConfigError, Environment, Watch},
    server::{Bound, Stop},
    upstream::UpstreamSettings,
};

/// Serves the configuration at `path` until a signal.
pub(super) fn run(path: &Path, env: &Environment<'_>) -> Result<ExitCode, CommandError> {
    let mut watch = Watch::default();
    let config = load(path, env, &mut watch)?;
    // Before anything can be reached: whoever sees a port may send a signal.
    let (reload, asked) = mpsc::channel();
    let stop = watch_signals(reload).map_err(AppError::from)?;
    let listeners = app::bind(&config.server).map_err(AppError::from)?;
    let _written_to_the_end = log::start(&config.log);
    for warning in &config.warnings {
        tracing::warn!("{warning}");
    }
    let Listeners {
        proxy,
        metrics,
        admin,
    } = &listeners;
    let proxy = proxy
        .iter()
        .map(Bound::address)
        .collect::<Result<Vec<_>, _>>();
    if let (Ok(proxy), Ok(metrics)) = (proxy, metrics.local_addr()) {
        let upstreams = config.upstreams.iter();
        let upstream: Vec<_> = upstreams.map(UpstreamSettings::told).collect();
        let (proxy, upstream) = (proxy.join(", "), upstream.join(", "));
        let admin = admin.as_ref().and_then(|admin| admin.local_addr().ok());
        let admin = admin.map_or_else(|| "off".to_owned(), |admin| admin.to_string());
        tracing::info!(proxy, %metrics, admin, upstream, "Serving.");
    }
    let world = World {
        configs: reread(path.to_owned(), watch, asked).map_err(AppError::from)?,
        listeners,
        clock: Clock::system(),
        stop,
    };
    let code = match app::run(config, world)? {
        RunEnd::Drained => {
            tracing::info!("Stopped: every request was answered.");
            ExitCode::SUCCESS
        }
        RunEnd::Cut => {
            tracing::warn!("Stopped at once: what was still in flight was cut off.");
            ExitCode::from(3)
        }
    };
    Ok(code)
}

/// Reads the configuration again when somebody asks for it or one of its files has changed.
fn reread(path: PathBuf, mut watch: Watch, asked: mpsc::Receiver<()>) -> io::Result<Configs> {
    let (send, configs) = tokio::sync::mpsc::channel(1);
    std::thread::Builder::new()
        .name("config".into())
        .spawn(move || {
            loop {
                match asked.recv_timeout(BETWEEN_LOOKS) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Timeout) if watch.look() => {}
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                let read = load(&path, &environment, &mut watch);
                if send.blocking_send(read).is_err() {
                    return;
                }
            }
        })?;
    Ok(configs)
}

/// Reads the configuration, and has all of its files watched from before they were read.
fn load(path: &Path, env: &Environment<'_>, watch: &mut Watch) -> Result<Config, ConfigError> {
    let mut files = vec![path.to_owned()];
    loop {
        watch.about_to_read(files.clone());
        let read = Config::load(path, env);
        let named = match &read {
            Ok(config) => &config.files,
            Err(error) => &error.files,
        };
        let known = files.len();
        for file in named {
            if !files.contains(file) {
                files.push(file.clone());
            }
        }
        if files.len() == known {
            return read;
        }
    }
}

/// The first SIGTERM or SIGINT stops gracefully, the second at once; SIGHUP asks for the configuration to be
/// read again.
fn watch_signals(reload: mpsc::Sender<()>) -> io::Result<watch::Receiver<Stop>> {
    let (tell, stop) = watch::channel(Stop::No);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (mut terminate, mut interrupt, mut hangup) = {
        let _inside = runtime.enter();
        (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
            signal(SignalKind::hangup())?,
        )
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            runtime.block_on(async {
                for next in [Stop::Graceful, Stop::Now] {
                    loop {
                        tokio::select! {
                            _ = terminate.recv() => break,
                            _ = interrupt.recv() => break,
                            _ = hangup.recv() => drop(reload.send(())),
                        }
                    }
                    tell.send_replace(next);
                }
            });
        })?;
    Ok(stop)
}

/// How often the files of the configuration are looked at: a change takes effect within about twice that.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
