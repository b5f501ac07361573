//! What a thread that blocks has to do asynchronously: it hands that to a task, which does one thing after the other. The thread
//! waits while the task has enough to do.

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use towpath_transfer::BoxFuture;

use crate::error::CopyError;
use crate::message::hung_up;

/// Errands that wait for the one that is under way.
const WAITING: usize = 1;

type Errand = BoxFuture<'static, Result<(), CopyError>>;

/// See the head of this module. What was handed over is done even if this is dropped.
pub struct Errands {
    queue: mpsc::Sender<Errand>,
    end: oneshot::Receiver<Result<(), CopyError>>,
}

impl Errands {
    /// None yet; their task belongs to `runtime`.
    pub fn start(runtime: &Handle) -> Self {
        let ((queue, mut inbox), (tell, end)) = (mpsc::channel::<Errand>(WAITING), oneshot::channel());
        runtime.spawn(async move {
            let mut result = Ok(());
            while let (Ok(()), Some(errand)) = (&result, inbox.recv().await) {
                result = errand.await;
            }
            // Nobody may wait for it.
            let _ = tell.send(result);
            close(inbox).await;
        });
        Self { queue, end }
    }

    /// Hands over what is to be done behind all others. An error: one of them failed. Blocks while enough wait.
    pub fn hand(
        &self,
        errand: impl Future<Output = Result<(), CopyError>> + Send + 'static,
    ) -> Result<(), CopyError> {
        self.queue.blocking_send(Box::pin(errand)).map_err(|_| hung_up())
    }

    /// Waits for what comes of an errand. Blocks.
    pub fn wait_for<T: Send + 'static>(
        &self,
        errand: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, CopyError> {
        let (tell, told) = oneshot::channel();
        self.hand(async move { tell.send(errand.await).map_err(|_| hung_up()) })?;
        told.blocking_recv().map_err(|_| hung_up())
    }

    /// Waits until all are done; the error of the one that failed. Blocks.
    pub fn finish(self) -> Result<(), CopyError> {
        drop(self.queue);
        self.end.blocking_recv().unwrap_or_else(|_| Err(hung_up()))
    }
}

/// Takes nothing more from a channel and drops what is in it, with what somebody puts there at this very moment. A receiver that is
/// only dropped misses that: it would stay as long as there is a sender, and whoever waits for its end with it.
pub async fn close<T>(mut inbox: mpsc::Receiver<T>) {
    inbox.close();
    while inbox.recv().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::Semaphore;

    use super::*;
    use crate::threads;

    /// Hands over four of which the one of this number fails. How many were done, and what the thread was told.
    async fn done(failing: u64) -> (u64, Result<(), CopyError>) {
        let (done, runtime) = (Arc::new(AtomicU64::new(0)), Handle::current());
        let counted = Arc::clone(&done);
        let told = threads::spawn(move || {
            let errands = Errands::start(&runtime);
            for number in 0..4 {
                let counted = Arc::clone(&counted);
                let failed = errands.hand(async move {
                    assert_eq!(counted.fetch_add(1, Ordering::SeqCst), number, "in order");
                    if number == failing { Err(hung_up()) } else { Ok(()) }
                });
                if failed.is_err() {
                    break;
                }
            }
            errands.finish()
        });
        let told = told.await.unwrap();
        (done.load(Ordering::SeqCst), told)
    }

    #[tokio::test]
    async fn all_are_done_in_order_up_to_the_one_that_fails() {
        let (count, told) = done(9).await;
        assert!(count == 4 && told.is_ok(), "{count} {told:?}");
        for failing in [0, 1, 3] {
            let (count, told) = done(failing).await;
            assert!(count == failing + 1 && matches!(told, Err(CopyError::HungUp)), "{count} {told:?}");
        }
    }

    #[tokio::test]
    async fn the_thread_waits_while_one_is_under_way_and_another_one_waits() {
        let (gate, runtime) = (Arc::new(Semaphore::new(0)), Handle::current());
        let closed = Arc::clone(&gate);
        let handing = threads::spawn(move || {
            let errands = Errands::start(&runtime);
            let (begins, begun) = oneshot::channel();
            let first = errands.hand(async move {
                begins.send(()).unwrap();
                closed.acquire().await.unwrap().forget();
                Ok(())
            });
            begun.blocking_recv().unwrap();
            first.and(errands.hand(async { Ok(()) })).unwrap();
            errands
        });
        let errands = handing.await.unwrap();
        assert!(errands.queue.try_reserve().is_err(), "a third one would wait");
        gate.add_permits(1);
        let waiting = threads::spawn(move || {
            let told = errands.wait_for(async { 7 });
            errands.finish().and(told)
        });
        assert_eq!(waiting.await.unwrap().unwrap(), 7);
    }
}
