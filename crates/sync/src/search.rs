//! Search of a copy on the receiver's own disk, and reports of it.
//!
//! Both sides of a copy are the same person's, who may log in at both: so the search may go beyond the
//! destination (`docs/threat-model.md`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use towpath_api::copy::CopyOptions;
use towpath_api::{FileDelta, SearchEffort, Searched, Seconds};
use towpath_disk_search::Scope;
use towpath_files::is_temporary_name;
use towpath_reuse::adaptive::{Account, Bottleneck, Effort, Search};
use towpath_reuse::delta::made::{MadeDelta, MadeDeltas};
use towpath_store::DiskStore;

use super::endpoint::Endpoint;

/// Search for what would come to `destination` otherwise, unless the person does not want that.
pub fn of(endpoint: &Endpoint, destination: &Path) -> Option<Search> {
    let options = &endpoint.options;
    if options.no_search || options.whole_file {
        return None;
    }
    let scope = scope(options, destination)?;
    Some(within(&endpoint.host.store, scope, (options.search_effort, options.limit_rate)))
}

/// The search of a copy or a get within `scope`: both leave out the same and have the same budget, one for each transfer. The
/// network brings at most `limit_rate` bytes a second, 0 if nobody knows.
pub fn within(store: &Arc<DiskStore>, scope: Scope, (asked, limit_rate): (SearchEffort, u64)) -> Search {
    let leave_out = Arc::new(|name: &OsStr| is_temporary_name(name.as_bytes()));
    let effort = match asked {
        SearchEffort::Some => Effort::Some,
        SearchEffort::All => Effort::All,
    };
    Search { store: Arc::clone(store), scope, leave_out, effort, limit_rate }
}

/// From the destination outwards; nothing if there is nowhere to begin.
pub fn scope(options: &CopyOptions, destination: &Path) -> Option<Scope> {
    let start = std::path::absolute(destination).ok()?;
    let start = start.ancestors().find(|path| path.is_dir())?.canonicalize().ok()?;
    let dirs = options.search.iter().map(|dir| PathBuf::from(OsStr::from_bytes(dir)));
    let extra = dirs.filter_map(|dir| dir.canonicalize().ok()).collect();
    let home = std::env::var_os("HOME").and_then(|home| PathBuf::from(home).canonicalize().ok());
    Some(Scope {
        start,
        roots: home.into_iter().collect(),
        extra,
        beyond_destination: true,
        ..Scope::default()
    })
}

/// Search as the summary has it.
pub fn searched(account: &Account) -> Searched {
    let bottleneck = |bottleneck: Bottleneck| match bottleneck {
        Bottleneck::Network => "network",
        Bottleneck::Disk => "disk",
        Bottleneck::Processor => "processor",
        Bottleneck::Search => "search",
    };
    let changes = account.changes.iter();
    Searched {
        directories: account.stats,
        files: account.hashes,
        // A file that is being read when all is found has no end.
        hashed: account.hashed_bytes.max(account.from_files),
        looked_up: account.checks,
        disk_seconds: Seconds::from_duration(account.disk_time),
        from_network: account.from_network,
        by_delta: account.by_delta,
        changed: 0,
        by_change: 0,
        from_files: account.from_files,
        from_index: account.from_index,
        in_vain: account.in_vain,
        limited: account.is_limited,
        bottlenecks: changes
            .map(|(at, what)| (Seconds::from_duration(*at), bottleneck(*what).to_owned()))
            .collect(),
        deltas: Vec::new(),
    }
}

/// Adds files that came as deltas.
pub fn add_deltas(search: &mut Searched, deltas: MadeDeltas) {
    search.changed += deltas.files;
    search.by_change += deltas.saved;
    let told = |MadeDelta { path, base, reason, made, came }| {
        let why = reason.to_owned();
        FileDelta { path, base, why, made, came }
    };
    search.deltas.extend(deltas.listed.into_iter().map(told));
}
