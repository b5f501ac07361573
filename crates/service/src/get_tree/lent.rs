//! A tree that others are served of while it comes, by the ticket that they all have.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use towpath_content::Oid;
use towpath_peer_server::grants::PassingOn;
use towpath_store::About;
use towpath_targets::spool::Spool;
use towpath_targets::tree_holding::{CloseOnDrop, TreeHolding};
use towpath_transfer::Session;

use crate::announcing::bound_sink;
use crate::getting::GetUnderWay;

/// Interval at which others are told what has come.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// What others may have of a tree that comes, until this is dropped.
pub(super) struct LentTree {
    pub(super) holding: Arc<TreeHolding>,
    passing: PassingOn,
}

impl LentTree {
    /// Serves others from now on, if this get may. The descriptor will come into `spool`.
    pub(super) fn begin(get: &GetUnderWay, spool: &Spool) -> Option<Self> {
        let lending = get.lending.as_ref()?;
        let holding = TreeHolding::new(&get.service.store, &get.oid);
        spool.announce(holding.descriptor(bound_sink(get)));
        // Whoever limits what is served by what came keeps it announced.
        let open = CloseOnDrop(Arc::clone(&holding));
        let passing = lending.coming(&get.service, Arc::new(move |oid| open.0.has(oid)));
        Some(Self { holding, passing })
    }

    /// The descriptor is here whole, as `content`. A live one is handed on with its issuer's word for what it became.
    pub(super) async fn whole(&self, get: &GetUnderWay, (about, content): (&About, Oid), spool: &Arc<Spool>) {
        let grants = &get.service.grants;
        if get.oid.is_live()
            && grants.content_of(&get.oid).is_live()
            && let Some(binding) = get.binding().await
            && !get.service.store.is_here(&binding.content)
        {
            grants.bind(&get.oid, binding);
        }
        self.holding.whole(&content, about, spool);
        self.tell().await;
    }

    /// The get is over. Of a tree that is not whole no more than what came is served, as long as it is passed on.
    pub(super) async fn end(self, is_whole: bool) {
        self.tell().await;
        if !is_whole {
            self.passing.keep_limit();
        }
    }

    async fn tell(&self) {
        let holding = Arc::clone(&self.holding);
        let _ = tokio::task::spawn_blocking(move || holding.tell()).await;
    }
}

/// Tells others where this get serves, and what has come, until this is dropped.
pub(super) async fn serve(get: &GetUnderWay, session: &Session, lent: Option<&LentTree>) -> Infallible {
    let telling = async {
        let Some(lent) = lent else { return std::future::pending().await };
        let mut ticks = tokio::time::interval(TELL_EVERY);
        loop {
            ticks.tick().await;
            lent.tell().await;
        }
    };
    tokio::select! {
        never = get.serve_meanwhile(session.progress()) => never,
        never = telling => never,
    }
}
