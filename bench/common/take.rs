//! The script that decides, as a client of Redis calls it.

use redis::Connection;

/// As the proxy joins it: lua/README.md.
pub const TAKE: &str = concat!(
    include_str!("../../lua/counter.lua"),
    include_str!("../../lua/log.lua"),
    include_str!("../../lua/sliding_window_counter.lua"),
    include_str!("../../lua/fixed_window.lua"),
    include_str!("../../lua/sliding_log.lua"),
    include_str!("../../lua/take.lua"),
);

/// Has Redis keep a script, and tells the name by which it is called.
pub fn load(text: &str, client: &mut Connection) -> String {
    let loaded = redis::cmd("SCRIPT").arg("LOAD").arg(text).query(client);
    loaded.expect("it compiles")
}
