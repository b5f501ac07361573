//! The Towpath service, assembled: what `tow` embeds and `tow daemon` runs.
//!
//! ```text
//!   Service (implements api::Api) ── put, put_tree ──► store ◄── peers (listen, plugins::direct)
//!        │                                                │
//!        └── get, get_tree ── transfer session ── plugins ┴── files on disk
//! ```
//!
//! | module | story |
//! |---|---|
//! | [`state`] | [`Service`]: the parts put together |
//! | `byte_place` | the place of the bytes that the daemon keeps itself |
//! | [`in_process`] | the API in process |
//! | `ticket_ends` | how tickets end |
//! | `staying` | what was fetched and is passed on |
//! | [`put`], `put_tree` | files, trees and streams into the store |
//! | [`put_source`] | paths that become one object, and the filters on them |
//! | [`boundaries`] | where an application says that chunks end |
//! | `open_puts`, [`parts`] | puts whose bytes come in parts: those that are open, and what happens to them |
//! | `tree_put` | trees that an application describes itself |
//! | `getting` | a get under way: what its ticket says, and the plugins it draws from |
//! | `get`, `get_tree` | objects out of a session into files |
//! | `get_list` | what a ticket names, told and not fetched |
//! | `get_update` | a tree at the destination made equal to that of a ticket |
//! | `local_ends` | the links of this machine that a get or a copy goes out by |
//! | `selecting` | the part of a tree that a get asks for |
//! | `tree_place` | the place of a tree, or of paths in it, and what an interrupted get left there |
//! | `get_search` | what a get may search on this machine's disk |
//! | `sessions`, `open_session` | leases that live as long as their application |
//! | `arriving`, [`content`] | objects as streams; each crosses the network once |
//! | `transfers` | numbers of transfers, and the events of all of them |
//! | [`copy`] | `tow cp` and `tow sync` |
//! | `while_getting` | a get that serves others while it runs, and hears of others |
//! | `meeting` | a get that hears of others at a rendezvous |
//! | `bringing` | a site's cache: what its machines hand it tickets for, fetched and served |
//! | `left` | files of what is on its way to it, and of what an interruption left |
//! | `near` | the cache of this machine's site, which a get asks first |
//! | `admission` | which transfers may begin |
//! | [`metrics`], [`metrics_page`] | what is counted, and as Prometheus reads it |
//! | `web_places` | what of a get lies on web servers |
//! | `waiting` | what keeps a get from its sender, and how long it is tried |
//! | `fuzzing` | doors for the fuzz targets in `fuzz/`, in no other build |
//!
//! After a crash: the store is readable, tickets of leases are honoured again, an interrupted get
//! goes on when it is asked for again.

mod admission;
mod announcing;
mod arriving;
pub mod boundaries;
mod bringing;
pub mod byte_place;
pub mod content;
pub mod copy;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod get;
mod get_list;
mod get_search;
mod get_tree;
mod get_update;
mod getting;
pub mod in_process;
mod left;
mod local_ends;
mod meeting;
pub mod metrics;
pub mod metrics_page;
mod near;
mod open_puts;
mod open_session;
pub mod parts;
pub mod put;
pub mod put_source;
mod put_tree;
mod selecting;
mod sessions;
pub mod state;
mod staying;
pub mod ticket_ends;
mod transfers;
mod tree_place;
mod tree_put;
mod waiting;
mod web_places;
mod while_getting;

pub use in_process::InProcess;
pub use put_source::PutSource;
pub use state::{Options, Service};
pub use towpath_files::metadata::is_root;
pub use towpath_files::{display_name, display_text, filter};
pub use towpath_plugins::registry::{Plugin, Registry};
