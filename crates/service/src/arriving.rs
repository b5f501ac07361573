//! Objects fetched into a spool, from which applications read them as streams.

use std::ops::Range;
use std::sync::Arc;

use tokio::sync::watch;
use towpath_api::{ApiError, ErrorKind};
use towpath_content::Oid;
use towpath_store::{About, ObjectKind, State, Store, Temporary};
use towpath_targets::in_flight::{Arrival, ArrivalFacts, Described, Leading, Stage};
use towpath_targets::spool::{FailOnDrop, Spool};
use towpath_transfer::{Fetched, Group, Session, Target};

use crate::getting::{GetUnderWay, sources};
use crate::metrics::{Direction, Watch};
use towpath_words as words;

/// Starts to fetch what `get` asks for.
pub(crate) fn start(get: Arc<GetUnderWay>, leading: Option<Leading>) -> Result<Arc<Arrival>, ApiError> {
    fill(get, leading, None)
}

/// Starts to fetch some bytes of what `get` asks for, which was described so. They are kept for
/// nobody else: a part makes no object.
pub(crate) fn start_part(
    get: Arc<GetUnderWay>,
    described: Described,
    part: Range<u64>,
) -> Result<Arc<Arrival>, ApiError> {
    fill(get, None, Some((described, part)))
}

fn fill(
    get: Arc<GetUnderWay>,
    leading: Option<Leading>,
    part: Option<(Described, Range<u64>)>,
) -> Result<Arc<Arrival>, ApiError> {
    let incoming = get.service.store.incoming().map_err(|error| words::store(&error))?;
    let file = incoming.file().try_clone();
    let file = file.map_err(|error| words::io("open", incoming.path(), &error))?;
    let (spool, described) = match part {
        Some((described, part)) => (Spool::part_into(file, part), Some(described)),
        None => (Spool::into_empty(file), None),
    };
    let (stages, stage) = watch::channel(Stage::Asking);
    let session = get.session();
    let (progress, filled) = (session.progress(), Arc::clone(&spool));
    let task = tokio::spawn(async move {
        let end = FailOnDrop(Arc::clone(&filled));
        let last = match fetch(&get, &session, &filled, incoming, described, &stages).await {
            Ok((oid, facts)) => Stage::Complete { oid, facts },
            Err(error) => Stage::Failed(error),
        };
        stages.send_replace(last);
        drop((end, leading));
    });
    Ok(Arc::new(Arrival { spool, stage, progress, task: task.abort_handle() }))
}

async fn fetch(
    get: &Arc<GetUnderWay>,
    session: &Session,
    spool: &Arc<Spool>,
    incoming: Temporary,
    described: Option<Described>,
    stages: &watch::Sender<Stage>,
) -> Result<(Oid, ArrivalFacts), ApiError> {
    let (about, layout) = match described {
        Some(described) => described,
        None => get.describe(true).await?,
    };
    refuse_trees(&about)?;
    let admitted = get.service.admission.begin(Direction::Get, get.service.home.data())?;
    let _permit = get.service.in_flight.permit().await?;
    let request = get.request(Arc::clone(spool) as Arc<dyn Target>, layout, Group::default());
    let facts = ArrivalFacts { size: request.size, encrypted: get.plugins.root.state().is_encrypted };
    stages.send_replace(Stage::Coming(facts));
    let fetched = session.fetch(request).await.map_err(|error| words::fetch(&error))?;
    Watch::new(Arc::clone(&get.service.metrics)).sums(&sources(&session.progress().snapshot()));
    if spool.is_whole() {
        keep(get, spool, incoming, &fetched, &about).await;
        get.finish(true).await;
    }
    admitted.done();
    Ok((fetched.oid, facts))
}

/// Only plain bytes can be streamed.
pub(crate) fn refuse_trees(about: &About) -> Result<(), ApiError> {
    match about.kind {
        ObjectKind::Blob => Ok(()),
        ObjectKind::Tree => {
            let message = "this is a tree, and only a single file can be had as a stream";
            Err(ApiError::new(ErrorKind::Usage, message).hint("get it into a new directory (-o)"))
        }
    }
}

/// Keeps what came as cache, for the next application and the next peer. Without it nothing is
/// wrong: the bytes would cross the network again.
async fn keep(get: &Arc<GetUnderWay>, spool: &Spool, incoming: Temporary, fetched: &Fetched, about: &About) {
    let (get, values, about) = (Arc::clone(get), spool.take_values(), about.clone());
    let (oid, size) = (fetched.oid, fetched.size);
    let keeping = tokio::task::spawn_blocking(move || {
        let store = &get.service.store;
        if !matches!(store.have(&oid), Ok(have) if have.state == State::Complete) {
            store.adopt(incoming, &oid, size, &values, &about)?;
        }
        get.note_sent(&oid);
        get.service.trim_cache()
    });
    if let Ok(Err(error)) = keeping.await {
        tracing::warn!(%error, "an object that came could not be kept");
    }
}
