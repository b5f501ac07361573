//! A tree that others are served of while it comes, by the ticket that they all have.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use towpath_content::Oid;
use towpath_store::About;
use towpath_targets::spool::Spool;
use towpath_targets::tree_holding::TreeHolding;
use towpath_transfer::Session;

use crate::getting::GetUnderWay;

/// Interval at which others are told what has come.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// What others may have of a tree, if this get serves others.
pub(super) fn holding(get: &GetUnderWay) -> Option<Arc<TreeHolding>> {
    get.lending.as_ref().map(|_| TreeHolding::new(&get.service.store, &get.oid))
}

/// Serves others from now on, until this is dropped: the descriptor is here whole, as `content`. A live one is handed on with its
/// issuer's word for what it became.
pub(super) async fn lend(
    get: &GetUnderWay,
    holding: Option<&Arc<TreeHolding>>,
    (about, content): (&About, Option<Oid>),
    spool: &Arc<Spool>,
) -> Infallible {
    let _passing = async {
        let (holding, content, lending) = (holding?, content?, get.lending.as_ref()?);
        let binding = if get.oid.is_live() { Some(get.binding().await?) } else { None };
        holding.open(&content, about, spool)?;
        let has_come = Arc::clone(holding);
        let passing = lending.coming(&get.service.grants, Arc::new(move |oid| has_come.has(oid)));
        binding.into_iter().for_each(|binding| get.service.grants.bind(&get.oid, binding));
        Some(passing)
    }
    .await;
    std::future::pending().await
}

/// Tells others where this get serves, and what has come, until this is dropped.
pub(super) async fn serve(
    get: &GetUnderWay,
    session: &Session,
    holding: Option<&Arc<TreeHolding>>,
) -> Infallible {
    tokio::select! {
        never = get.serve_meanwhile(session.progress()) => never,
        never = tell(holding) => never,
    }
}

async fn tell(holding: Option<&Arc<TreeHolding>>) -> Infallible {
    let mut ticks = tokio::time::interval(TELL_EVERY);
    loop {
        ticks.tick().await;
        match holding.cloned() {
            Some(holding) => drop(tokio::task::spawn_blocking(move || holding.tell()).await),
            None => std::future::pending().await,
        }
    }
}
