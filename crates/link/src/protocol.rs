//! Names of what is spoken on connections.

/// What is spoken on a connection: both ends must agree on it (ALPN).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Protocol(pub &'static [u8]);

impl Protocol {
    /// That between services, for transfers.
    pub const PEER: Self = Self(b"tow/1");
}

impl Default for Protocol {
    fn default() -> Self {
        Self::PEER
    }
}
