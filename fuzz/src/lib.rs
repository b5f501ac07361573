//! Every parser of bytes from outside, as a plain function: it may refuse what it is given, and
//! must not panic, hang, take more memory than its limits say, or take for good what it would write differently.
//!
//! The same functions are run by libFuzzer (`cargo +nightly fuzz run --features libfuzzer NAME`,
//! see `fuzz_targets/`) and by `src/bin/smoke.rs`, which needs a stable compiler only and is part
//! of `cargo test`. Both begin from `corpus/NAME`, where inputs are kept that once made a parser fail.
//!
//! | module | whose bytes |
//! |---|---|
//! | [`content`], [`recipes`] | senders' and ticket issuers': names, trees, deltas; recipes as a whole |
//! | [`codes`] | whoever types a code, or carries the messages for one |
//! | [`link`] | whoever reaches a port or a pipe |
//! | [`relay`] | whoever reaches a relay, and relays |
//! | [`rendezvous`] | whoever reaches a rendezvous, rendezvous servers, and who has the same ticket |
//! | [`direct`], [`session`], [`answering`] | peers': messages one by one, a connection as a whole, its answering half |
//! | [`following`] | senders': samples of objects |
//! | [`files`] | the other side's of a copy: rules and modes |
//! | [`copy`] | the other side's of a copy: its messages, and what makes files of their older versions |
//! | [`conversation`] | the same, all of it: a copy against a model |
//! | [`json`] | the same: options, events, summaries, errors |
//! | [`disk`] | what lies in this service's own folders |
//! | [`vault`] | vault servers', their clients', and what lies in a server's folder |
//! | [`vault_client`] | vault servers', other members', and what lies in a client's folder |
//! | [`local`] | programs of this machine: the local API |
//! | [`input`], [`seeds`] | numbers and runs out of any bytes; valid inputs to begin from |
//! | [`corpus`] | the kept ones |

pub mod answering;
pub mod codes;
pub mod content;
pub mod conversation;
pub mod copy;
pub mod corpus;
pub mod direct;
pub mod disk;
pub mod files;
pub mod following;
pub mod input;
pub mod json;
pub mod link;
pub mod local;
pub mod recipes;
pub mod relay;
pub mod rendezvous;
pub mod seeds;
pub mod session;
pub mod vault;
pub mod vault_client;

/// A parser under test.
pub struct Target {
    /// As in `fuzz_targets/` and `corpus/`.
    pub name: &'static str,
    /// Feeds it.
    pub run: fn(&[u8]),
    /// Valid inputs to begin from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target { name: "ticket", run: content::ticket, seeds: seeds::content::tickets },
    Target { name: "oid_text", run: content::oid_text, seeds: seeds::content::oid_texts },
    Target { name: "oid_binary", run: content::oid_binary, seeds: seeds::content::oids },
    Target { name: "hint", run: content::hint, seeds: seeds::content::hints },
    Target { name: "withdrawal", run: content::withdrawal, seeds: seeds::content::withdrawals },
    Target { name: "bound_secret", run: content::bound_secret, seeds: seeds::content::bound_secrets },
    Target { name: "live_statement", run: content::live_statement, seeds: seeds::content::statements },
    Target { name: "tree_decoder", run: content::tree_decoder, seeds: seeds::content::trees },
    Target { name: "tree_block", run: content::tree_block, seeds: seeds::content::trees },
    Target { name: "piece_proof", run: content::piece_proof, seeds: seeds::content::proofs },
    Target {
        name: "chunking_parameters",
        run: content::chunking_parameters,
        seeds: seeds::content::parameters,
    },
    Target { name: "delta", run: content::delta, seeds: seeds::content::deltas },
    Target {
        name: "delta_signature",
        run: content::delta_signature,
        seeds: seeds::content::delta_signatures,
    },
    Target { name: "delta_outline", run: content::delta_outline, seeds: seeds::content::outlines },
    Target { name: "delta_refine", run: content::delta_refine, seeds: seeds::content::refined },
    Target { name: "delta_exchange", run: content::delta_exchange, seeds: seeds::content::exchange_messages },
    Target { name: "delta_requester", run: content::delta_requester, seeds: seeds::content::exchanges },
    Target { name: "recipe_node", run: recipes::recipe_node, seeds: seeds::content::recipe_nodes },
    Target { name: "recipe_root", run: recipes::recipe_root, seeds: seeds::content::recipe_roots },
    Target { name: "recipe_walk", run: recipes::recipe_walk, seeds: recipes::seeds },
    Target { name: "recipe_reader", run: recipes::recipe_reader, seeds: recipes::seeds },
    Target { name: "samples", run: following::samples, seeds: following::seeds },
    Target { name: "code_text", run: codes::code_text, seeds: codes::texts },
    Target { name: "code_message", run: codes::code_message, seeds: codes::messages },
    Target { name: "code_exchange", run: codes::code_exchange, seeds: codes::exchanges },
    Target { name: "frame", run: link::frame, seeds: seeds::link::frames },
    Target { name: "pipe", run: link::pipe, seeds: seeds::link::pipes },
    Target { name: "tls_record", run: link::tls_record, seeds: seeds::link::records },
    Target { name: "tls_opening", run: link::tls_opening, seeds: seeds::link::contents },
    Target { name: "tls_handshake", run: link::tls_handshake, seeds: seeds::link::handshakes },
    Target { name: "relay_message", run: relay::relay_message, seeds: seeds::relay::messages },
    Target { name: "relay_place", run: relay::relay_place, seeds: seeds::relay::places },
    Target { name: "relay_circuit", run: relay::relay_circuit, seeds: seeds::relay::circuits },
    Target { name: "relay_table", run: relay::relay_table, seeds: seeds::relay::tables },
    Target { name: "rendezvous_message", run: rendezvous::rendezvous_message, seeds: rendezvous::messages },
    Target { name: "rendezvous_entry", run: rendezvous::rendezvous_entry, seeds: rendezvous::entries },
    Target { name: "rendezvous_body", run: rendezvous::rendezvous_body, seeds: rendezvous::bodies },
    Target { name: "rendezvous_place", run: rendezvous::rendezvous_place, seeds: rendezvous::places },
    Target { name: "rendezvous_board", run: rendezvous::rendezvous_board, seeds: rendezvous::boards },
    Target {
        name: "rendezvous_cluster",
        run: rendezvous::rendezvous_cluster,
        seeds: rendezvous::cluster_messages,
    },
    Target { name: "control", run: direct::control, seeds: seeds::direct::controls },
    Target { name: "data_header", run: direct::data_header, seeds: seeds::direct::data_frames },
    Target { name: "packing", run: direct::packing, seeds: seeds::direct::packed },
    Target { name: "direct_decoder", run: direct::direct_decoder, seeds: seeds::direct::streams },
    Target { name: "direct_session", run: session::direct_session, seeds: session::seeds },
    Target { name: "direct_answering", run: answering::direct_answering, seeds: answering::seeds },
    Target { name: "filter_rules", run: files::filter_rules, seeds: seeds::files::filter_rules },
    Target { name: "chmod", run: files::chmod, seeds: seeds::files::modes },
    Target { name: "copy_message", run: copy::copy_message, seeds: seeds::copy::messages },
    Target { name: "copy_patch", run: copy::copy_patch, seeds: seeds::copy::patches },
    Target { name: "copy_conversation", run: conversation::copy_conversation, seeds: conversation::seeds },
    Target { name: "copy_options", run: copy::copy_options, seeds: seeds::copy::options },
    Target { name: "copy_event", run: json::copy_event, seeds: seeds::copy::events },
    Target { name: "copy_summary", run: json::copy_summary, seeds: seeds::copy::summaries },
    Target { name: "copy_error", run: copy::copy_error, seeds: seeds::copy::errors },
    Target { name: "recipe_file", run: disk::recipe_file, seeds: seeds::disk::recipe_files },
    Target { name: "chunk_entries", run: disk::chunk_entries, seeds: seeds::disk::chunk_entries },
    Target { name: "resume_record", run: disk::resume_record, seeds: seeds::disk::resume_records },
    Target { name: "share_record", run: disk::share_record, seeds: seeds::disk::share_records },
    Target { name: "vault_record", run: vault::vault_record, seeds: vault::records },
    Target { name: "vault_update", run: vault::vault_update, seeds: vault::updates },
    Target { name: "vault_packed", run: vault::vault_packed, seeds: vault::packed_updates },
    Target { name: "vault_tree", run: vault::vault_tree, seeds: vault::trees },
    Target { name: "vault_message", run: vault::vault_message, seeds: vault::messages },
    Target { name: "vault_talk", run: vault::vault_talk, seeds: vault::talks },
    Target { name: "vault_log", run: vault::vault_log, seeds: vault::logs },
    Target { name: "vault_log_record", run: vault::vault_log_record, seeds: vault::log_records },
    Target {
        name: "vault_client_record",
        run: vault_client::vault_client_record,
        seeds: vault_client::records,
    },
    Target {
        name: "vault_descriptor",
        run: vault_client::vault_descriptor,
        seeds: vault_client::descriptors,
    },
    Target { name: "vault_block", run: vault_client::vault_block, seeds: vault_client::blocks },
    Target { name: "vault_chain", run: vault_client::vault_chain, seeds: vault_client::chains },
    Target { name: "vault_cache", run: vault_client::vault_cache, seeds: vault_client::caches },
    Target { name: "http_range", run: local::http_range, seeds: seeds::disk::ranges },
    Target { name: "api_query", run: local::api_query, seeds: seeds::disk::queries },
];

/// Runs the parser of this name: for libFuzzer, which has a program for each.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    (target.run)(data);
}
