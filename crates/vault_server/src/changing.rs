//! The thread on which a vault is changed. Changes go one after the other anyway. On one thread they use the same memory again; the
//! threads of a pool would each keep some ten megabytes of what they had for one.

use std::io;
use std::thread::Builder;

use tokio::sync::{mpsc, oneshot};

use crate::error::VaultError;

/// Changes that wait for the one under way. Who brings more waits.
const WAITING: usize = 16;

type BoxedChange = Box<dyn FnOnce() + Send>;

/// What becomes of a change.
#[derive(Debug)]
pub(crate) struct ChangeResult<T>(oneshot::Receiver<Result<T, VaultError>>);

/// The thread. It ends when nobody can bring changes any more.
#[derive(Debug)]
pub(crate) struct ChangingThread {
    changes: mpsc::Sender<BoxedChange>,
}

impl ChangingThread {
    /// Starts one.
    pub(crate) fn start() -> io::Result<Self> {
        let (changes, mut waiting) = mpsc::channel::<BoxedChange>(WAITING);
        let main = move || {
            while let Some(change) = waiting.blocking_recv() {
                change();
            }
        };
        Builder::new().name("vault".into()).spawn(main)?;
        Ok(Self { changes })
    }

    /// Has something done after what came before.
    pub(crate) async fn begin<T: Send + 'static>(
        &self,
        change: impl FnOnce() -> Result<T, VaultError> + Send + 'static,
    ) -> ChangeResult<T> {
        let (done, result) = oneshot::channel();
        let change: BoxedChange = Box::new(move || drop(done.send(change())));
        // If the thread died, the result tells.
        let _ = self.changes.send(change).await;
        ChangeResult(result)
    }
}

impl<T> ChangeResult<T> {
    /// Returns when it is done.
    pub(crate) async fn wait(self) -> Result<T, VaultError> {
        // A thread that died left the vault in the middle of something.
        self.0.await.unwrap_or(Err(VaultError::LogFailed))
    }
}
