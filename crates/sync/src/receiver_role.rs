//! The receiving side, from the first entry to the last sync: the plugins that bring bytes, the thread that merges, and the
//! summary at the end.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;
use towpath_api::copy::{CopySummary, Via};
use towpath_content::{Hint, Oid};
use towpath_disk_search::Scope;
use towpath_plugins::direct::LedTo;
use towpath_plugins::local::Allow;
use towpath_plugins::registry::{self, PluginParts, Tree};
use towpath_plugins::{Direct, Inspected, Takeover, takeover};
use towpath_protocol::{ControlReceiver, PeerConfig};
use towpath_reuse::adaptive::Adaptive;
use towpath_store::Store;
use towpath_transfer::SourceId;
use towpath_transfer::ledger::LedgerConfig;
use towpath_transfer::offer::OfferSource;
use towpath_transfer::progress::Snapshot;
use towpath_transfer::{Context, Root, Session, SessionConfig, Source};

use super::delta_requests::DeltaRequests;
use super::endpoint::{Endpoint, StopOnDrop, joined, receiving, show_progress, sources};
use super::first_files::FirstFiles;
use super::merge::{Destined, Merge};
use super::network_look::{Known, Look, NetworkLook};
use super::remote::RemoteSupplier;
use super::search;
use super::threads;
use super::tree_link::TreeLink;
use crate::error::CopyError;
use towpath_reuse::candidates::search::CandidateSearch;
use towpath_reuse::policy::network::Network;
use towpath_ssh::race::{Race, STAND_LIMIT, lead_to};
use towpath_sync_messages::race_talk::tell_wishes;

/// Names of the two ways to the other side.
const WAYS: takeover::Names = takeover::Names { first: "ssh", better: "tls" };

/// Threads that write contents, at most: as many as cores.
const WRITERS: usize = 8;
/// Files that a session holds: no more are under way.
const FILES: usize = 8192;

/// Writes what the sender has and this side wants to `destined`, and returns what was done. `theirs`
/// is where the sender can be dialled, for `race`.
pub async fn receive(
    endpoint: &Endpoint,
    destined: Destined,
    inbox: &mut ControlReceiver,
    mut race: Option<Race>,
    theirs: &[SocketAddr],
) -> Result<CopySummary, CopyError> {
    let options = &endpoint.options;
    let receiving = receiving(&endpoint.host, options, endpoint.events.clone(), endpoint.is_remote_end);
    let takeover = begin_race(endpoint, race.as_mut(), theirs).await?;
    let Tree { root, adaptive, .. } =
        plugins(endpoint, &destined.path, Arc::clone(&takeover), race.as_ref().and_then(Race::led));
    let (session, hints) = session(endpoint, root, Arc::clone(&takeover) as Arc<dyn OfferSource>);
    let _leading = lead_to(hints, race.as_ref().map(Race::their_addresses));
    let session = Arc::new(session);
    let first = Arc::new(FirstFiles::new(!options.whole_file));
    let look = look(&takeover, adaptive.as_ref(), (options.limit_rate as f64, Arc::clone(&first)));
    let network = NetworkLook::new(look, known_once(endpoint, race.as_ref()));
    let _wishing = race.as_ref().map(|race| tell_wishes(&endpoint.control, race));
    let (tree, telling) = TreeLink::start(endpoint.control.clone());
    let supplier = supplier(endpoint, &tree, &session, (DeltaRequests::new(network), first), &destined.path);
    let _end = EndOnDrop(Arc::clone(&supplier));
    let merge = Merge::new(&receiving, Some(Arc::clone(&supplier) as _), destined)?;
    let progress = session.progress();
    let _stop = StopOnDrop(Arc::clone(&receiving));
    let shown = Some((progress.clone(), endpoint.other.clone()));
    let reporting = show_progress(Arc::clone(&receiving), shown, endpoint.events.clone());
    let reporting = AbortOnDropHandle::new(tokio::spawn(reporting));

    let merging = {
        let tree = Arc::clone(&tree);
        threads::spawn(move || tree.follow(merge))
    };
    let result = tokio::select! {
        result = joined(merging) => result,
        heard = tree.hear(endpoint, inbox, race.as_ref()) => heard.map(|never| match never {}),
        () = receiving.stopped() => receiving.check(),
    };
    drop(reporting);
    tree.end();
    telling.await?;
    tracing::info!(way = takeover.active(), "data came");
    // An error that makes going on useless explains why the rest failed.
    receiving.check().and(result).inspect_err(|error| receiving.stop(error.clone()))?;
    let mut summary = receiving.account.summary();
    add_sources(&mut summary, &progress.snapshot(), &endpoint.other);
    let mut deltas = supplier.made_of_older();
    if let Some(adaptive) = adaptive {
        summary.search = Some(search::searched(&adaptive.account()));
        deltas = deltas.and(adaptive.made_deltas());
    }
    if deltas.files > 0 {
        search::add_deltas(summary.search.get_or_insert_default(), deltas);
    }
    Ok(summary)
}

/// The way to the other side, which is the better one of two as soon as that stands; waits for it if nothing else may be
/// used.
async fn begin_race(
    endpoint: &Endpoint,
    mut race: Option<&mut Race>,
    theirs: &[SocketAddr],
) -> Result<Arc<Takeover>, CopyError> {
    let (via, timeout) = (endpoint.options.via, Duration::from_secs(endpoint.options.timeout));
    let first = Arc::new(Direct::over(Arc::clone(&endpoint.peer), endpoint.host.identity.clone()));
    let takeover = match via {
        Via::Tls => Takeover::only_better("no TLS connection yet", WAYS),
        Via::Both | Via::Ssh => Takeover::new(first, WAYS),
    };
    if endpoint.links > 1 {
        takeover.give_way();
    }
    if let Some(race) = &mut race {
        race.run(theirs, Some(Arc::clone(&takeover)));
    }
    if let (Via::Tls, Some(race)) = (via, race) {
        race.stands(if timeout.is_zero() { STAND_LIMIT } else { timeout }).await?;
    }
    Ok(takeover)
}

/// Supplier of the files that are wanted at `destination`, over `session`.
fn supplier(
    endpoint: &Endpoint,
    tree: &Arc<TreeLink>,
    session: &Arc<Session>,
    asking: (DeltaRequests, Arc<FirstFiles>),
    destination: &Path,
) -> Arc<RemoteSupplier> {
    let (options, processors) = (&endpoint.options, &endpoint.host.processors);
    let compress = options.compress || !endpoint.host.wishes.is_empty();
    // Files for processors come to them by the session.
    let is_wanted = !(options.no_search || options.whole_file || processors.inspect_any());
    let scope = if is_wanted { search::scope(options, destination) } else { None };
    let beyond_destination = endpoint.host.bases_beyond;
    let candidates = CandidateSearch::new(scope.map(|scope| Scope { beyond_destination, ..scope }));
    RemoteSupplier::new(tree, session, compress, asking, candidates, processors)
}

/// Adds the sources of bytes, as far as the session brought them.
fn add_sources(summary: &mut CopySummary, snapshot: &Snapshot, other: &str) {
    summary.sources = sources(snapshot, other);
    let local = snapshot.by_source.get(&SourceId::this_machine()).copied().unwrap_or(0);
    summary.literal = snapshot.by_source.values().sum::<u64>() - local;
    summary.kept = snapshot.kept;
    summary.matched += local + snapshot.kept;
}

/// Ends the supplier with the copy.
struct EndOnDrop(Arc<RemoteSupplier>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The configured plugins, with the best way to the other side, and where that leads if further ones may be found.
fn plugins(
    endpoint: &Endpoint,
    destination: &Path,
    takeover: Arc<Takeover>,
    led: Option<(LedTo, PeerConfig)>,
) -> Tree {
    let (store, allow) = (Arc::clone(&endpoint.host.store) as Arc<dyn Store>, allow(endpoint, destination));
    let (identity, (from, host, mirrors, near)) = (endpoint.host.identity.clone(), Default::default());
    let (way, search) = (Some(takeover as Arc<dyn Source>), search::of(endpoint, destination));
    let (led, peer) = led.unzip();
    let peer = peer.unwrap_or_default();
    let parts = PluginParts { store, allow, identity, peer, from, host, way, led, mirrors, search, near };
    registry::build(&endpoint.host.plugins, &parts)
}

/// Objects that this machine has and the copy may draw from.
fn allow(endpoint: &Endpoint, destination: &Path) -> Allow {
    let store = Arc::clone(&endpoint.host.store);
    match endpoint.is_remote_end {
        _ if endpoint.options.whole_file => Arc::new(|_| false),
        // Anyone who may log in here may know what is here (`docs/threat-model.md`).
        true => Arc::new(|_| true),
        false => {
            let inside = destination.canonicalize().ok();
            Arc::new(
                move |oid| matches!(store.locate(oid), Ok(Some((path, _))) if is_open(&path, inside.as_deref())),
            )
        }
    }
}

/// True if a pull may draw from a file: the copy gets the mode that the other machine sends, so what only its owner may read
/// is not for it, unless it lies in the destination itself.
fn is_open(path: &Path, inside: Option<&Path>) -> bool {
    inside.is_some_and(|inside| path.starts_with(inside))
        || path.metadata().is_ok_and(|found| found.permissions().mode() & 0o044 != 0)
}

/// The session that files are fetched by.
fn session(
    endpoint: &Endpoint,
    root: Arc<dyn Root>,
    offers: Arc<dyn OfferSource>,
) -> (Session, watch::Sender<Vec<Hint>>) {
    let root = Inspected::wrap(root, &endpoint.host.processors);
    let (hints_in, hints) = watch::channel(Vec::new());
    let context = Context { root: Oid::of(b"copy"), node: Some(endpoint.peer.node()), secret: None, hints };
    let workers = available_parallelism().map_or(2, usize::from).clamp(2, WRITERS);
    let mut config = SessionConfig { objects: FILES, workers, ..SessionConfig::default() };
    if endpoint.options.timeout > 0 {
        let wait_limit = Duration::from_secs(endpoint.options.timeout);
        config.ledger = LedgerConfig { wait_limit, ..config.ledger };
    }
    (Session::start_with_offers(root, offers, context, config), hints_in)
}

/// Completes when something is known of the network: of ssh's pipe its round trip, of a connection beside it more.
fn known_once(endpoint: &Endpoint, race: Option<&Race>) -> Known {
    let (measured, standing) = (endpoint.peer.until_measured(), race.map(Race::standing));
    Box::pin(async move {
        let standing = async {
            let stands = match standing {
                Some(standing) => standing.await,
                None => false,
            };
            if !stands {
                std::future::pending().await
            }
        };
        tokio::select! {
            () = measured => {}
            () = standing => {}
        }
    })
}

/// State of the network at any moment; at first, the person's limit to its rate if there is one, else what the first files
/// show.
fn look(
    takeover: &Arc<Takeover>,
    adaptive: Option<&Arc<Adaptive>>,
    (limit, first): (f64, Arc<FirstFiles>),
) -> Look {
    let (takeover, adaptive) = (Arc::clone(takeover), adaptive.map(Arc::clone));
    Box::new(move || {
        let path = takeover.state().path;
        let unsearched = || Network::measured(0.0, &path);
        let measured = adaptive.as_ref().map_or_else(unsearched, |adaptive| adaptive.network(&path));
        measured.or_limit(limit).or_limit(first.rate())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liar::{Carrier, Scene};

    /// Where the remote side asked, all small files went by ssh's pipe, as it did not know that links were to come.
    #[tokio::test]
    async fn several_named_links_are_waited_for_whichever_side_asks() {
        for (is_remote_end, links) in [(false, 0), (true, 1), (false, 2), (true, 2)] {
            let scene = Scene::new();
            let (endpoint, ..) = scene.endpoints(Carrier::Pipe, is_remote_end).await;
            let endpoint = Endpoint { links, ..endpoint };
            let takeover = begin_race(&endpoint, None, &[]).await.unwrap();
            assert_eq!(takeover.gives_way(), links > 1, "{links} links, at the remote end: {is_remote_end}");
        }
    }

    #[test]
    fn a_pull_publishes_no_file_that_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        for (mode, open) in [(0o600, false), (0o700, false), (0o644, true), (0o640, true)] {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(is_open(&file, None), open, "{mode:o}");
            assert!(is_open(&file, Some(folder.path())));
        }
    }
}
