//! A transfer plugin of your own that wraps another one: it delays each question and each call, and loses some of the wants, as a
//! bad network would. By it you see in your own tests what an application makes of that.
//!
//! It uses only the public API. What there is to see:
//!
//! * [`HinderingPlugin`] names what it wraps as its [`inner`](Source::inner): methods that it leaves out are
//!   that one's.
//! * A want that it loses ends like any other: with an outcome, which says when to ask again.
//! * [`PLUGIN`] is how a program and its configuration know it:
//!   `{ plugin = "hindering", of = { plugin = "direct" }, delay_seconds = 1, lose_each = 5 }`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use towpath_plugins::registry::{Build, Field, FieldKind, Plugin};
use towpath_transfer::source::{Query, Sink, SourceState};
use towpath_transfer::{BoxFuture, Context, Description, Outcome, Source, Want};

/// Delay before a lost want may be asked for again.
const AGAIN: Duration = Duration::from_millis(20);

/// The plugin as `hindering`, for `towpath_cli::run` and the configuration.
pub static PLUGIN: Plugin = Plugin {
    name: "hindering",
    scheme: None,
    about: "Delays another plugin, and loses some of what it is asked for.",
    fields: &[
        Field { name: "of", kind: FieldKind::Plugin, about: "The plugin to hinder." },
        Field {
            name: "delay_seconds",
            kind: FieldKind::Seconds { least: 0, most: 60, default: 0 },
            about: "How long each question and each call waits.",
        },
        Field {
            name: "lose_each",
            kind: FieldKind::Number { least: 0, most: 1_000_000, default: 0 },
            about: "Of so many wants one is lost; 0: none.",
        },
    ],
    build: Build::Source(|node, builder| {
        let delay = Duration::from_secs(node.number("delay_seconds"));
        Arc::new(HinderingPlugin::new(builder.child(node, "of"), delay, node.number("lose_each")))
    }),
};

/// See the head of this crate.
pub struct HinderingPlugin {
    inner: Arc<dyn Source>,
    delay: Duration,
    lose_each: u64,
    wanted: AtomicU64,
}

impl HinderingPlugin {
    /// Wraps `inner`. Of `lose_each` wants one is lost; 0: none.
    pub fn new(inner: Arc<dyn Source>, delay: Duration, lose_each: u64) -> Self {
        Self { inner, delay, lose_each, wanted: AtomicU64::new(0) }
    }

    fn is_lost(&self) -> bool {
        let number = self.wanted.fetch_add(1, Ordering::Relaxed) + 1;
        self.lose_each > 0 && number.is_multiple_of(self.lose_each)
    }
}

impl Source for HinderingPlugin {
    fn name(&self) -> &str {
        PLUGIN.name
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.inner)
    }

    fn state(&self) -> SourceState {
        self.inner.state()
    }

    fn describe<'a>(
        &'a self,
        query: Query,
        context: &'a Context,
        answers: mpsc::Sender<Description>,
    ) -> BoxFuture<'a, Result<(), Outcome>> {
        Box::pin(async move {
            tokio::time::sleep(self.delay).await;
            self.inner.describe(query, context, answers).await
        })
    }

    fn get<'a>(&'a self, wants: Vec<Want>, context: &'a Context, sink: Arc<dyn Sink>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            tokio::time::sleep(self.delay).await;
            let (lost, wants): (Vec<Want>, Vec<Want>) = wants.into_iter().partition(|_| self.is_lost());
            lost.iter().for_each(|want| sink.outcome(want.tag, Outcome::RetryLater(AGAIN)));
            if !wants.is_empty() {
                self.inner.get(wants, context, sink).await;
            }
        })
    }
}
