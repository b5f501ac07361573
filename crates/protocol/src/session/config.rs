//! Behaviour of this side of a connection.

use std::time::Duration;
use towpath_transfer::SourceId;

use crate::processors::Processors;

/// Behaviour of this side of a connection.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Not a byte for this long: the connection is lost.
    pub silence: Duration,
    /// This side has a control stream.
    pub control: bool,
    /// The encodings of data that this side takes and can send.
    pub processors: Processors,
    /// Wishes by name: such data are encoded in both directions, not only those sent and if the peer asks.
    pub wishes: Vec<String>,
    /// This side has an answering half.
    pub serves: bool,
    /// Urgency of this side's `Get`s among those of its node.
    pub priority: i8,
    /// It measures the round trip by itself, as the kernel does not tell it.
    pub measures: bool,
    /// What it sends is paced by a measured rate, not by what is lost.
    pub paces: bool,
    /// Name of the peer in deliveries, with the link by which they come, if there are several.
    pub source: SourceId,
    /// The hellos tell the link that the connection goes by.
    pub tells_link: bool,
    /// Number of the connection among those of that link, which is told with it.
    pub link_number: u32,
}
