//! Real programs on emulated links: hosts are network namespaces, links are TUN devices and a model of
//! what becomes of each packet. Linux only; needs root.
//!
//! | module | story |
//! |---|---|
//! | [`net`] | a lab: hosts, links, addresses, routes; how it is taken down |
//! | `namespace` | a host: a network namespace and what is set in it |
//! | [`emulator`] | links that carry real packets |
//! | [`disk`] | a host's own disk |
//! | [`programs`] | what can carry data from host to host: Towpath and its peers |
//! | [`data`] | what they carry |
//! | [`measure`] | what a process took |
//! | [`runner`] | a scenario's `[run]`: every program on the same data in turn |
//! | [`results`] | rows, table and plot |
//! | [`probes`] | what a link does to real traffic |
//! | [`commands`] | what the program `towpath-lab` can do |
//! | [`error`] | what keeps a lab from being made |

pub mod commands;
pub mod data;
pub mod disk;
pub mod emulator;
pub mod error;
pub mod measure;
pub(crate) mod namespace;
pub mod net;
pub mod probes;
pub mod programs;
pub mod results;
pub mod runner;
