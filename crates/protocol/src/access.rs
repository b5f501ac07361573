//! Access to objects: one pure decision on who may fetch what.
//!
//! A peer gets an object only under a *root*: an object whose ticket secret it proved on this
//! connection. A node that configuration or an operation under way allows this very object needs
//! no root. Under a root it gets the
//! root, the content a live root is bound to, and what the root's tree descriptor mentions.
//! Knowing a hash is not enough, and a refusal never tells whether the object is here.

/// Facts about a request, known when it is decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The peer's node id is allowed this very object.
    pub node_allowed: bool,
    /// The peer proved the secret of the root on this connection.
    pub root_proved: bool,
    /// The object is the root, or what the root is bound to.
    pub is_root: bool,
    /// The block that the peer named mentions the object; `None` if it named none or it is not here.
    pub mentioned: Option<bool>,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Serve it.
    Allow,
    /// Do not, and say why.
    Refuse(&'static str),
}

/// Reason why nothing is served under a root that was not proved.
pub const NOT_PROVED: &str = "the ticket is not known here or its secret was not proved";

/// Decides about one request.
pub const fn decide(facts: Facts) -> Decision {
    match facts {
        Facts { node_allowed: true, .. } => Decision::Allow,
        Facts { root_proved: false, .. } => Decision::Refuse(NOT_PROVED),
        Facts { is_root: true, .. } => Decision::Allow,
        Facts { mentioned: Some(true), .. } => Decision::Allow,
        Facts { mentioned: Some(false), .. } => Decision::Refuse("the ticket does not cover this object"),
        Facts { mentioned: None, .. } => Decision::Refuse("nothing was named that covers this object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_table() {
        for bits in 0..24u8 {
            let mentioned = [None, Some(false), Some(true)][usize::from(bits / 8)];
            let facts = Facts {
                node_allowed: bits & 1 != 0,
                root_proved: bits & 2 != 0,
                is_root: bits & 4 != 0,
                mentioned,
            };
            let expected =
                facts.node_allowed || facts.root_proved && (facts.is_root || mentioned == Some(true));
            assert_eq!(decide(facts) == Decision::Allow, expected, "{facts:?}");
        }
    }

    #[test]
    fn nobody_gets_in_by_default() {
        let stranger =
            Facts { node_allowed: false, root_proved: false, is_root: true, mentioned: Some(true) };
        assert!(matches!(decide(stranger), Decision::Refuse(_)));
    }
}
