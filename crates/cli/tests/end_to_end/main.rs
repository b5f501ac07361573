//! The real program, end to end: two homes on one machine, linked by 127.0.0.1.
//!
//! ```text
//!   runner ── situations of a module ──► TestEnvironment ── Machine ── Call ──► Running ──► Ended
//!                                             │ temporary folder: homes, files, output
//! ```
//!
//! | module | story |
//! |---|---|
//! | `runner` | runs the situations side by side, and says at the end how many were skipped and why |
//! | `environment` | two machines; programs that are started, watched, and killed when dropped |
//! | `trees` | files and trees: making them, and comparing all that must arrive |
//! | `arriving` | what is sent arrives identical |
//! | `destinations` | where it goes, and what is never overwritten |
//! | `getting_parts` | what a ticket holds, and a part of that |
//! | `getting_alike` | files that are alike and lie near by spare the network |
//! | `sharing_parts` | several paths under one ticket, and what filters keep at home |
//! | `carrying` | metadata of trees by ticket, and what needs a word |
//! | `updating` | what is there becomes equal to a ticket's tree |
//! | `interruptions` | either side killed at any time; the same command goes on |
//! | `interrupting` | every command is interrupted at moments drawn from a seed |
//! | `streams` | `something \| tow put -`, followed while it grows |
//! | `daemons` | the service in the background, its socket and its tickets |
//! | `local_api` | programs that use the service: the guide, killed applications, streams |
//! | `running` | the daemon under a supervisor: configuration, limits, reload, metrics, its end |
//! | `local_client` | HTTP on a daemon's socket, that bears the daemon's death |
//! | `applications` | the examples in Python and C: what either puts the other gets |
//! | `daemon_killed` | `kill -9` of the daemon in the midst of its applications: what it acknowledged stays |
//! | `bad_clients` | a program that stalls or sends garbage costs only itself |
//! | `byte_places` | a daemon that keeps its own bytes in a bucket or on another disk |
//! | `second_time` | what is on this machine already does not cross the network |
//! | `indexing` | `tow index`: read ahead of time, and once |
//! | `small` | what rides along in a ticket or a descriptor |
//! | `small_deltas` | changed files of some MiB: gets beside copies |
//! | `waiting` | what is told to whoever waits for another machine |
//! | `holders` | who fetched serves others |
//! | `lending` | a get serves others while it runs |
//! | `links` | several links of one machine at once |
//! | `link_changes` | links that are cut, come back or get another address in mid-transfer |
//! | `mirrors` | files on plain web servers |
//! | `web_server` | real web servers of a situation |
//! | `anywhere` | machines that know no address of each other meet at a rendezvous |
//! | `routers` | machines behind routers: who is called, and what a relay carries |
//! | `vault` | encrypted versions on a server that is killed, edited, set back, or lies |
//! | `vault_budget` | what a small put and the get of it consist of |
//! | `vault_attacks` | a server that lies with its own key: heads, versions, blocks, certificates, trees |
//! | `lying_server` | such a server, in front of a real one |
//! | `vault_lines` | what a put chooses by what the line carries |
//! | `vault_holders` | blocks from a server and copies of it: slow, gone, lying, lacking some |
//! | `vault_waiting` | puts that are not committed: without a server, cut off, on their way |
//! | `vault_kills` | kill -9 of a put at each of its writes and messages |
//! | `vault_sharing` | members of a vault: who reads, who writes, and who may no more |
//! | `vault_upkeep` | differences of a vault's versions, files that are not read again, old versions that go |
//! | `vault_serving` | `tow vault serve`: kill -9, and who may make vaults |
//! | `doctor` | what works from here, and advice about what does not |
//! | `clusters` | rendezvous servers that share entries and mailboxes through NATS |
//! | `site_cache` | the cache of a site, which its machines draw on |
//! | `ticket_terms` | tickets that end, that are taken back, and that may not be passed on |
//! | `receivers` | what a sender sees of those who fetch |
//! | `refusals` | what goes wrong is said, with its exit status, and nothing wrong is written |
//! | `machinery` | programs and rights that a situation needs; processes as `/proc` shows them |
//! | `sshd` | a real sshd, and the way through it |
//! | `odd_trees` | a tree with everything, and rsync's opinion on its copy |
//! | `copying_remote` | `tow cp` and `tow sync` of such a tree, here and through ssh |
//! | `copying_unchanged` | a large tree that is the same at both sides, of which nothing is opened |
//! | `copying_interrupted` | any process of a copy killed; the same command goes on |
//! | `copying_by_daemon` | the daemon makes copies as their caller would |
//! | `copying_beside` | several copies into one directory at once |
//! | `copying_faults` | what goes wrong with a copy, in words and exit status |
//! | `copying_swapped` | directories become links that lead outside while a tree is synced |
//! | `copying_flags` | every flag of `tow sync` and `tow cp` does something, and what rsync does with it |
//! | `copying_flags_remote` | the same of those about the other side and the way there |
//! | `copying_like_rsync` | random trees and flags: `tow sync` ends as rsync does, `tow cp` as `cp -a` |
//! | `confined` | what the kernel refuses to the far end of a copy and to the daemon |
//! | `network` | machines on one network, or behind routers |
//! | `likeness` | whether trees are alike in all that can be seen |
//! | `help` | the help texts, as they were last agreed on |
//! | `memory` | neither side grows with the data |
//!
//! `cargo test -p towpath --test end_to_end -- WORD...` runs those whose names contain a word.
#![cfg_attr(test, allow(clippy::unwrap_used))] // Clippy spares only functions marked as tests.

mod anywhere;
mod applications;
mod arriving;
mod bad_clients;
mod byte_places;
mod carrying;
mod ciphers;
mod clusters;
mod confined;
mod copying_beside;
mod copying_by_daemon;
mod copying_faults;
mod copying_flags;
mod copying_flags_remote;
mod copying_interrupted;
mod copying_like_rsync;
mod copying_remote;
mod copying_renamed;
mod copying_swapped;
mod copying_unchanged;
mod daemon_killed;
mod daemons;
mod destinations;
mod doctor;
mod environment;
mod getting_alike;
mod getting_parts;
mod help;
mod holders;
mod indexing;
mod interrupting;
mod interruptions;
mod lending;
mod likeness;
mod link_changes;
mod links;
mod local_api;
mod local_client;
mod lying_server;
mod machinery;
mod memory;
mod mirrors;
mod network;
mod odd_trees;
mod older_elsewhere;
mod processors;
mod receivers;
mod refusals;
mod routers;
mod runner;
mod running;
mod searching;
mod second_time;
mod sharing_parts;
mod site_cache;
mod slow_line;
mod small;
mod small_deltas;
mod sshd;
mod streams;
mod ticket_terms;
mod trees;
mod updating;
mod vault;
mod vault_attacks;
mod vault_budget;
mod vault_holders;
mod vault_kills;
mod vault_lines;
mod vault_serving;
mod vault_sharing;
mod vault_upkeep;
mod vault_waiting;
mod waiting;
mod web_server;

use std::process::ExitCode;

fn main() -> ExitCode {
    let modules = [
        daemon_killed::SITUATIONS,
        copying_interrupted::SITUATIONS,
        copying_beside::SITUATIONS,
        copying_by_daemon::SITUATIONS,
        copying_faults::SITUATIONS,
        copying_renamed::SITUATIONS,
        copying_swapped::SITUATIONS,
        copying_remote::SITUATIONS,
        confined::SITUATIONS,
        copying_unchanged::SITUATIONS,
        memory::SITUATIONS,
        interrupting::SITUATIONS,
        interruptions::SITUATIONS,
        refusals::SITUATIONS,
        processors::SITUATIONS,
        streams::SITUATIONS,
        daemons::SITUATIONS,
        local_api::SITUATIONS,
        running::SITUATIONS,
        applications::SITUATIONS,
        bad_clients::SITUATIONS,
        byte_places::SITUATIONS,
        arriving::SITUATIONS,
        destinations::SITUATIONS,
        getting_alike::SITUATIONS,
        getting_parts::SITUATIONS,
        sharing_parts::SITUATIONS,
        carrying::SITUATIONS,
        updating::SITUATIONS,
        second_time::SITUATIONS,
        indexing::SITUATIONS,
        searching::SITUATIONS,
        older_elsewhere::SITUATIONS,
        small::SITUATIONS,
        small_deltas::SITUATIONS,
        receivers::SITUATIONS,
        waiting::SITUATIONS,
        ciphers::SITUATIONS,
        copying_flags::SITUATIONS,
        copying_flags_remote::SITUATIONS,
        copying_like_rsync::SITUATIONS,
        help::SITUATIONS,
        holders::SITUATIONS,
        mirrors::SITUATIONS,
        ticket_terms::SITUATIONS,
        site_cache::SITUATIONS,
        anywhere::SITUATIONS,
        routers::SITUATIONS,
        vault::SITUATIONS,
        vault_attacks::SITUATIONS,
        vault_budget::SITUATIONS,
        vault_holders::SITUATIONS,
        vault_kills::SITUATIONS,
        vault_lines::SITUATIONS,
        vault_serving::SITUATIONS,
        vault_sharing::SITUATIONS,
        vault_upkeep::SITUATIONS,
        vault_waiting::SITUATIONS,
        doctor::SITUATIONS,
        clusters::SITUATIONS,
    ];
    let waiting = [link_changes::SITUATIONS, links::SITUATIONS, lending::SITUATIONS];
    runner::run(&modules, &waiting)
}
