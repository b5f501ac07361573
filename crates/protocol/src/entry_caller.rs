//! The caller of a request for entries.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use towpath_transfer::offer::{EntryContent, EntrySink};
use towpath_transfer::{Outcome, Tag};

/// The caller, who goes on when nobody holds this any more: when the request has ended and all that followed from it is done.
pub struct EntryCaller {
    sink: Arc<dyn EntrySink>,
    /// Cancelled once the sink knows that it asked.
    asked: CancellationToken,
    _end: oneshot::Sender<()>,
}

impl EntryCaller {
    pub(super) const fn new(
        sink: Arc<dyn EntrySink>,
        asked: CancellationToken,
        end: oneshot::Sender<()>,
    ) -> Self {
        Self { sink, asked, _end: end }
    }

    /// Hands over contents. If this is dropped before the receiving side has taken them, as the connection has ended, their wants
    /// end as "retry later".
    pub(super) async fn contents(&self, contents: Vec<(Tag, EntryContent)>, kept: usize) {
        let tags = contents.iter().map(|(tag, _)| *tag).collect();
        let mut untaken = Untaken { caller: self, tags };
        self.asked.cancelled().await;
        self.sink.contents(contents, kept).await;
        untaken.tags.clear();
    }

    /// Hands over a run.
    pub(super) async fn run(&self, tag: Tag, run: Bytes) {
        self.sink.run(tag, run).await;
    }

    /// Ends a want.
    pub(super) fn outcome(&self, tag: Tag, outcome: Outcome) {
        self.sink.outcome(tag, outcome);
    }
}

/// Wants whose contents the receiving side has not taken.
struct Untaken<'a> {
    caller: &'a EntryCaller,
    tags: Vec<Tag>,
}

impl Drop for Untaken<'_> {
    fn drop(&mut self) {
        self.tags.iter().for_each(|tag| self.caller.outcome(*tag, Outcome::RetryLater(Duration::ZERO)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::FutureExt;
    use towpath_content::tree::Time;
    use towpath_transfer::BoxFuture;
    use towpath_transfer::offer::{EntryBody, SignatureWay};

    use super::*;

    /// Notes what it is told.
    #[derive(Default)]
    struct Told(Mutex<Vec<String>>);

    impl Told {
        fn note(&self, what: String) {
            self.0.lock().unwrap().push(what);
        }

        fn take(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap())
        }
    }

    impl EntrySink for Told {
        fn asked(&self, _: &[Tag], _: Arc<dyn SignatureWay>) {}

        fn contents(&self, contents: Vec<(Tag, EntryContent)>, kept: usize) -> BoxFuture<'_, ()> {
            self.note(format!("{} contents, {kept} kept", contents.len()));
            Box::pin(std::future::ready(()))
        }

        fn run(&self, tag: Tag, _: Bytes) -> BoxFuture<'_, ()> {
            self.note(format!("run {tag}"));
            Box::pin(std::future::ready(()))
        }

        fn outcome(&self, tag: Tag, outcome: Outcome) {
            self.note(format!("{tag} {outcome:?}"));
        }
    }

    fn contents() -> Vec<(Tag, EntryContent)> {
        let (modified, body) = (Time { seconds: 0, nanos: 0 }, EntryBody::Named);
        vec![(7, EntryContent { oid: None, size: 1, modified, is_sparse: false, body })]
    }

    #[test]
    fn a_sink_knows_what_it_asked_for_before_it_gets_contents() {
        let (told, asked) = (Arc::new(Told::default()), CancellationToken::new());
        let sink = Arc::clone(&told) as Arc<dyn EntrySink>;
        let caller = EntryCaller::new(sink, asked.clone(), oneshot::channel().0);
        let mut handing = Box::pin(caller.contents(contents(), 9));
        assert!(handing.as_mut().now_or_never().is_none() && told.take().is_empty());
        asked.cancel();
        assert!(handing.as_mut().now_or_never().is_some());
        drop(handing);
        assert_eq!(told.take(), ["1 contents, 9 kept"]);
    }

    #[test]
    fn contents_that_nobody_took_are_to_be_asked_for_again() {
        let told = Arc::new(Told::default());
        let sink = Arc::clone(&told) as Arc<dyn EntrySink>;
        let caller = EntryCaller::new(sink, CancellationToken::new(), oneshot::channel().0);
        assert!(caller.contents(contents(), 9).now_or_never().is_none());
        assert_eq!(told.take(), ["7 RetryLater(0ns)"]);
    }
}
