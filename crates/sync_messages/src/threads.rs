//! The threads of copies that block: on the disk, or on the other side. They use the program's runtime and can't be
//! ended from outside, so whoever ends the program first gives up its copies and then waits for their threads.

use std::sync::LazyLock;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// All of the process: it is the process that ends.
static THREADS: LazyLock<TaskTracker> = LazyLock::new(TaskTracker::new);

/// Does a copy's work on a thread of its own. Must be called within a runtime.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    THREADS.spawn_blocking(work)
}

/// Waits until no copy's thread works, for so long at most. Returns whether that is so; if not, the runtime must not be
/// shut down, as they would find it gone.
pub async fn ended(limit: Duration) -> bool {
    THREADS.close();
    tokio::time::timeout(limit, THREADS.wait()).await.is_ok()
}
