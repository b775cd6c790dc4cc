//! Who we are to servers of a kind, and how they are spoken to, wherever they are.

use std::{sync::Arc, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, FromRedisValue,
    IntoConnectionInfo as _, ProtocolVersion, RedisError,
    io::tcp::{TcpSettings, socket2::TcpKeepalive},
};
use tokio::{task::JoinError, time};

use super::{
    RedisSettings,
    connection::error_text,
    files::{self, Password, TlsFiles},
    topology::{HostPort, SentinelSettings},
    trouble::Trouble,
};

/// Makes clients.
pub(super) struct Access {
    /// Its address is a placeholder.
    info: ConnectionInfo,
    files: Arc<Files>,
    tls: bool,
}

struct Files {
    password: Option<Password>,
    tls: TlsFiles,
}

impl Access {
    /// To servers that keep counters.
    pub(super) fn to_servers(settings: &RedisSettings) -> Self {
        let info = settings.url.connection_info().clone();
        Self::new(info, settings.password.clone(), settings)
    }

    /// To the sentinels that watch them; they speak TLS where the servers do.
    pub(super) fn to_sentinels(sentinels: &SentinelSettings, settings: &RedisSettings) -> Self {
        let placeholder = ConnectionAddr::Tcp(String::new(), 0);
        let info = placeholder.into_connection_info();
        let mut info = info.expect("an address needs no parsing");
        if let Some(user) = &sentinels.user {
            let redis = info.redis_settings().clone().set_username(user);
            info = info.set_redis_settings(redis);
        }
        Self::new(info, sentinels.password.clone(), settings)
    }

    fn new(info: ConnectionInfo, password: Option<Password>, settings: &RedisSettings) -> Self {
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(
                TcpKeepalive::new()
                    .with_time(Duration::from_secs(5))
                    .with_interval(Duration::from_secs(1))
                    .with_retries(3),
            )
            .set_user_timeout(Duration::from_secs(2));
        // RESP3 for its push messages, by which a lost connection is noticed before it is used.
        let redis = info.redis_settings().clone();
        let redis = redis.set_protocol(ProtocolVersion::RESP3);
        let tls = settings.tls.clone();
        Self {
            info: info.set_tcp_settings(tcp).set_redis_settings(redis),
            files: Arc::new(Files { password, tls }),
            tls: settings.url.is_tls(),
        }
    }

    /// Where one is that was told as a host and a port.
    pub(super) fn address(&self, told: &HostPort) -> ConnectionAddr {
        let (host, port) = (told.host.clone(), told.port);
        if !self.tls {
            return ConnectionAddr::Tcp(host, port);
        }
        ConnectionAddr::TcpTls {
            host,
            port,
            insecure: false,
            tls_params: None,
        }
    }

    /// The answer to one question, by a connection of its own, within 200 ms.
    pub(super) async fn ask<T: FromRedisValue>(
        &self,
        whom: &HostPort,
        question: &Cmd,
    ) -> Result<T, Trouble> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let attempt = async {
            let client = self.client(self.address(whom)).await?;
            let answer = async {
                let mut connection = client
                    .get_multiplexed_async_connection_with_config(&config)
                    .await?;
                question.query_async(&mut connection).await
            };
            answer
                .await
                .map_err(|error| without_password(&error, &client))
        };
        time::timeout(ANSWER, attempt)
            .await
            .unwrap_or_else(|_| Err(Trouble::Silent))
    }

    /// A client of the server at `address`, with what the files hold by now. It has not connected.
    pub(super) async fn client(&self, address: ConnectionAddr) -> Result<Client, Trouble> {
        let files = Arc::clone(&self.files);
        // This runs beside requests, and a file may lie on a network.
        let read =
            tokio::task::spawn_blocking(move || files::read(files.password.as_ref(), &files.tls));
        let died = |error: JoinError| Trouble::Said(error.to_string());
        let held = read.await.map_err(died)??;

        let mut info = self.info.clone().set_addr(address);
        if let Some(password) = held.password {
            let redis = info.redis_settings().clone().set_password(password);
            info = info.set_redis_settings(redis);
        }
        let client = match held.certificates {
            Some(certificates) if self.tls => Client::build_with_tls(info, certificates),
            _ => Client::open(info),
        };
        client.map_err(|error| Trouble::Said(error.to_string()))
    }
}

/// A question gets no longer: files, name, TCP, TLS, authentication and answer together.
const ANSWER: Duration = Duration::from_millis(200);

/// What went wrong with a connection of `client`, without its password: a server that does not know
/// `HELLO` quotes it, password and all.
pub(super) fn without_password(error: &RedisError, client: &Client) -> Trouble {
    let text = error_text(error);
    Trouble::Said(
        match client.get_connection_info().redis_settings().password() {
            Some(password) if !password.is_empty() => text.replace(password, "***"),
            _ => text,
        },
    )
}
