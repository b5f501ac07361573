//! Requests to a bucket, and a small runtime that they run on while their callers block.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use object_store::aws::AmazonS3;
use tokio::runtime::{Builder, Runtime};
use towpath_byte_store::ByteStoreError;

use crate::faults::explain;

/// Threads that move bytes and encrypt.
const THREADS: usize = 2;

/// The client of a bucket, and where its requests run.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) client: Arc<AmazonS3>,
    /// The place in words.
    pub(crate) shown: String,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl Requests {
    /// Prepares requests to the place that is `shown` so.
    pub(crate) fn new(client: Arc<AmazonS3>, shown: &str) -> io::Result<Self> {
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(THREADS).thread_name("tow-s3").enable_all().build()?;
        Ok(Self { client, shown: shown.into(), runtime: Some(runtime) })
    }

    /// Runs a request to its end. Its own limits bound the wait.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        doing: &str,
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> Result<T, ByteStoreError> {
        let (done, result) = sync_channel(1);
        if let Some(runtime) = &self.runtime {
            runtime.spawn(async move {
                // Whoever waits waits to the end.
                let _ = done.send(request.await);
            });
        }
        match result.recv() {
            Ok(result) => result.map_err(|error| explain(&self.shown, doing, error)),
            Err(_) => Err(ByteStoreError::Failed {
                what: format!("{doing} {}", self.shown),
                source: "the request ended without a result".into(),
            }),
        }
    }

    /// The runtime's handle, for requests that run beside the caller.
    pub(crate) fn runtime(&self) -> Option<&Runtime> {
        self.runtime.as_ref()
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // Not waited for: the last handle may be dropped by a task.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
