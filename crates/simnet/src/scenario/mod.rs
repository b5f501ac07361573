//! A scenario: hosts, links between them, and what changes when. The lab builds it from namespaces,
//! the simulated network from structures in memory, so that a surprise in the lab becomes a quick
//! test.
//!
//! ```toml
//! about = "A transfer goes on by itself after its link was cut."
//! hosts = ["sender", "receiver"]
//!
//! [[link]]
//! name = "wire"                       # by default link0, link1, ...
//! between = ["sender", "receiver"]
//! rate = "100mbit"                    # bit, kbit, mbit, gbit; absent: no limit
//! delay = "16.5ms"                    # one way; us, ms, s
//! loss = "1%"                         # or 0.01
//! burst = 3                           # mean packets lost in a row
//! queue = "256k"                      # bytes, or a time: "20ms"
//! overhead = 14                       # bytes added to each packet
//! back = { rate = "10mbit" }          # what differs from receiver to sender
//!
//! [[change]]
//! at = "2s"                           # since the start
//! link = "wire"
//! cut = true                          # any parameter of a link; here both ways
//!
//! [[change]]
//! at = "4s"
//! link = "wire"
//! way = "forth"                       # forth, back or both (the default)
//! cut = false
//! ```
//!
//! `[[star]]` makes many hosts and links at once: `centre`, `leaf` (leaves are called `leaf1`, `leaf2`,
//! ...), `count`, and a link's parameters. `[[overlay]]` joins each pair of `hosts` by a link: `rates` is a
//! table with a row and a column for each of them (`""` for no link), other parameters are the same
//! for all. `[[case]]` is a variation: `name`, `[case.link.NAME]` with parameters of one link or of
//! `all`, and `[case.host]` for whoever runs it. `[run]`, `[disk.HOST]` and `[case.disk.HOST]` are for the lab.

mod read;

use std::time::Duration;

use thiserror::Error;

use crate::link::{LinkConfig, LinkQueue};

/// Hosts that a scenario may have.
const MAX_HOSTS: usize = 100_000;

/// Fault of a scenario, and where.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ScenarioError {
    /// Not TOML, or a field that is not known or has the wrong form.
    #[error("{0}")]
    Form(String),
    /// A field's value.
    #[error("{place}: {what}")]
    Value {
        /// Table with the fault.
        place: String,
        /// Fault of it.
        what: String,
    },
}

/// A link's parameters as far as they are told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params {
    /// See [`LinkConfig::rate`].
    pub rate: Option<u64>,
    /// See [`LinkConfig::delay`].
    pub delay: Option<Duration>,
    /// See [`LinkConfig::loss`].
    pub loss: Option<f64>,
    /// See [`LinkConfig::burst`].
    pub burst: Option<f64>,
    /// See [`LinkConfig::queue`].
    pub queue: Option<LinkQueue>,
    /// See [`LinkConfig::overhead`].
    pub overhead: Option<u64>,
    /// See [`LinkConfig::cut`].
    pub cut: Option<bool>,
}

impl Params {
    /// `config` with what is told here.
    pub fn apply(&self, config: &mut LinkConfig) {
        config.rate = self.rate.or(config.rate);
        config.delay = self.delay.unwrap_or(config.delay);
        config.loss = self.loss.unwrap_or(config.loss);
        config.burst = self.burst.unwrap_or(config.burst);
        config.queue = self.queue.or(config.queue);
        config.overhead = self.overhead.unwrap_or(config.overhead);
        config.cut = self.cut.unwrap_or(config.cut);
    }
}

/// Directions of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkWay {
    /// From the first host to the second.
    Forth,
    /// From the second host to the first.
    Back,
    /// Both.
    #[default]
    Both,
}

/// A link between two hosts.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkSpec {
    /// Name by which changes and cases refer to it.
    pub name: String,
    /// Indexes of its hosts.
    pub between: [usize; 2],
    /// From the first to the second.
    pub forth: LinkConfig,
    /// From the second to the first.
    pub back: LinkConfig,
}

impl LinkSpec {
    /// Changes one or both directions.
    pub fn apply(&mut self, way: LinkWay, params: &Params) {
        if way != LinkWay::Back {
            params.apply(&mut self.forth);
        }
        if way != LinkWay::Forth {
            params.apply(&mut self.back);
        }
    }
}

/// New parameters for a link while the scenario runs.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkChange {
    /// Since the start.
    pub at: Duration,
    /// Index of the link.
    pub link: usize,
    /// Direction.
    pub way: LinkWay,
    /// Parameters that change.
    pub params: Params,
}

/// A variation of the scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// For tables and plots.
    pub name: String,
    /// The links of this case.
    pub links: Vec<LinkSpec>,
    /// Settings of its hosts, for the lab.
    pub host: toml::Table,
    /// Differences of its hosts' disks, for the lab.
    pub disk: toml::Table,
}

/// See the head of this module.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Description of what it shows.
    pub about: String,
    /// Names.
    pub hosts: Vec<String>,
    /// Links, as they are at the start.
    pub links: Vec<LinkSpec>,
    /// Changes, in the order of their times.
    pub changes: Vec<LinkChange>,
    /// Variations; one that is called "" and changes nothing if the file names none.
    pub cases: Vec<Case>,
    /// `[run]`: what the lab does with it.
    pub run: toml::Table,
    /// `[disk.HOST]`: the disks that the lab makes.
    pub disk: toml::Table,
}

impl Scenario {
    /// Reads a scenario file.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        read::scenario(text)
    }

    /// The index of a host.
    pub fn host(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|host| host == name)
    }
}

#[cfg(test)]
mod tests;
