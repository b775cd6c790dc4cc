//! Asks addresses whether they are well: at the start, so that somebody is told, and again and again where the
//! configuration says so. A check connects as requests do, TLS and its verification included, and keeps nothing.

use std::sync::{Arc, LazyLock};

use futures_util::future::join_all;
use http::{Method, Uri, Version, header};
use pingora::{Error, ErrorType, connectors::http::Connector, http::RequestHeader};
use pingora_core::connectors::ConnectorOptions;
use tokio::time::{self, MissedTickBehavior, timeout};

use super::Upstream;
use crate::{
    pem,
    upstream::{HealthCheckSettings, Http, Member, UpstreamSettings},
};

impl Upstream {
    /// Tells, once, which addresses take no connections; requests are served all the same.
    pub(super) async fn tell_if_unreachable(&self) {
        let members = self.rotation.load().members().to_vec();
        let within = self.settings.connect_timeout;
        join_all(members.iter().map(|member| async move {
            let asked = timeout(within, self.ask(member, None)).await;
            if let Err(reason) = asked.unwrap_or(Err(Unwell::Late)) {
                tracing::warn!(
                    upstream = self.name(),
                    address = %member.target.socket,
                    %reason,
                    "The upstream takes no connections: until it does, requests are answered 502. Does it run, and does its address name it?"
                );
            }
        }))
        .await;
    }

    /// Checks every address again and again, for ever; ends at once if no checks are configured.
    pub(super) async fn keep_checking(&self) {
        let Some(rule) = &self.settings.health_check else {
            return;
        };
        let mut ticks = time::interval(rule.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let members = self.rotation.load().members().to_vec();
            join_all(members.iter().map(|member| self.check(member, rule))).await;
        }
    }

    async fn check(&self, member: &Arc<Member>, rule: &HealthCheckSettings) {
        let asked = timeout(rule.timeout, self.ask(member, rule.path.as_deref())).await;
        let asked = asked.unwrap_or(Err(Unwell::Late));
        if !member.standing.checked(rule, asked.is_ok()) {
            return;
        }
        self.tell_standing();
        let (upstream, address) = (self.name(), &member.target.socket);
        match asked {
            Ok(()) => {
                tracing::info!(upstream, %address, "The address is well again by its checks.")
            }
            Err(reason) => {
                tracing::warn!(upstream, %address, %reason, "The address is not well by its checks: it gets no requests.");
            }
        }
    }

    /// Connects, and asks for `path` if there is one.
    async fn ask(&self, member: &Member, path: Option<&str>) -> Result<(), Unwell> {
        let mut peer = self.peer(member, false)?;
        // Each time by a connection of its own: it is given back to nobody, and has no room for a second request.
        peer.options.max_h2_streams = 1;
        let (mut session, _) = CONNECTOR.get_http_session(&*peer).await?;
        let Some(path) = path else {
            return Ok(());
        };
        let host = self.settings.tls.as_ref();
        let host = host.and_then(|tls| tls.server_name.as_deref());
        let host = match host.unwrap_or(&member.target.host) {
            "" => "localhost".to_owned(),
            address if address.contains(':') => format!("[{address}]"),
            host => host.to_owned(),
        };
        let head = head(&host, path, &self.settings)?;
        session.write_request_header(head).await?;
        session.finish_request_body().await?;
        // Interim ones may come before it (RFC 9110, 15.2), within the time that the check has.
        let status = loop {
            session.read_response_header().await?;
            let status = session.response_header().map(|head| head.status);
            if !status.is_some_and(|status| status.is_informational()) {
                break status;
            }
        };
        match status.map(|status| status.as_u16()) {
            Some(200..=399) => Ok(()),
            Some(status) => Err(Unwell::Status(status)),
            None => Err(Unwell::Silent),
        }
    }
}

/// Why an address takes no requests.
#[derive(Debug, thiserror::Error)]
enum Unwell {
    #[error(transparent)]
    Failed(#[from] Box<Error>),
    #[error("it answered {0}")]
    Status(u16),
    #[error("it did not answer")]
    Silent,
    #[error("it did not answer in time")]
    Late,
}

/// HTTP/2 has the host in its target.
fn head(
    host: &str,
    path: &str,
    settings: &UpstreamSettings,
) -> pingora::Result<Box<RequestHeader>> {
    let mut head = RequestHeader::build(Method::GET, path.as_bytes(), Some(2))?;
    head.insert_header(header::USER_AGENT, "slidegate-health-check")?;
    match settings.http {
        Http::One => head.insert_header(header::HOST, host)?,
        Http::Two => {
            let scheme = if settings.tls.is_some() {
                "https"
            } else {
                "http"
            };
            let uri = Uri::builder()
                .scheme(scheme)
                .authority(host)
                .path_and_query(path);
            let invalid =
                |error| Error::because(ErrorType::InternalError, "the check's target", error);
            head.set_uri(uri.build().map_err(invalid)?);
            head.set_version(Version::HTTP_2);
        }
    }
    Ok(Box::new(head))
}

static CONNECTOR: LazyLock<Connector> = LazyLock::new(|| {
    let mut options = ConnectorOptions::new(1);
    options.ca_file = Some(pem::NO_AUTHORITIES.to_owned());
    Connector::new(Some(options))
});
