//! The Redis store and the server it depends on: what it leaves there, and what happens when the server
//! is slow, gone, replaced, or not what it should be.

use slidegate::store::At;

use crate::support::{demand::*, redis::*};

#[tokio::test]
async fn a_request_is_counted_by_the_servers_clock() {
    let server = RedisServer::start();
    let store = server.store();
    let first = take(&store, demand("p", 1, "2/1h"), At::Now).await;
    assert!(first.allowed && first.charged);
    assert_eq!(
        take(&store, demand("p", 1, "2/1h"), At::Now)
            .await
            .remaining(),
        0
    );
    assert!(!take(&store, demand("p", 1, "2/1h"), At::Now).await.allowed);
}
