//! Access to objects: one pure decision on who may fetch what.
//!
//! A peer gets an object only under a *root*: an object whose ticket secret it proved on this
//! connection. A node that configuration or an operation under way allows this very object needs
//! no root. Under a root it gets the
//! root, the content a live root is bound to, and what the root's tree descriptor mentions.
//! Knowing a hash is not enough, and a refusal never tells whether the object is here.
//!
//! Any holder of a ticket may pass on what it got by it, if the ticket and its own settings allow that ([`Holding`]): whoever
//! proves the ticket's secret has the right already, and could ask the issuer.
//!
//! A ticket that expired or was withdrawn opens nothing any more, whoever is asked ([`TicketEnd`]). Whoever proves its secret is told
//! which of both it is.

use towpath_content::ticket::BoundSecret;

/// Why a ticket opens nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketEnd {
    /// Its terms say so.
    Expired,
    /// Its issuer took it back.
    Withdrawn,
    /// It is for fewer nodes than have come, and this one was not among the first.
    Taken {
        /// It is for one node.
        by_one: bool,
    },
}

/// How this node came to what is under a root, and so whether it serves it to whoever proves the ticket's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// The ticket is over, whoever issued it.
    Over(TicketEnd),
    /// It issued the ticket.
    Issued,
    /// It got the root by that very ticket.
    Given {
        /// The ticket lets its holders pass on what they got.
        ticket_allows: bool,
        /// So do this node's settings, for what it got so.
        settings_allow: bool,
    },
}

impl Holding {
    /// True if it is served to whoever proves the secret.
    pub const fn serves(self) -> bool {
        match self {
            Self::Over(_) => false,
            Self::Issued => true,
            Self::Given { ticket_allows, settings_allow } => ticket_allows && settings_allow,
        }
    }
}

/// Secret of a ticket that this node was given for a root that it has, or has parts of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenSecret {
    /// The ticket's secret, bound to its terms: these may forbid it.
    pub secret: BoundSecret,
    /// This node's settings allow it.
    pub settings_allow: bool,
}

impl GivenSecret {
    /// The holding of what was got by it.
    pub const fn holding(&self) -> Holding {
        Holding::Given { ticket_allows: !self.secret.terms.no_swarm, settings_allow: self.settings_allow }
    }
}

/// Facts about a request, known when it is decided on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The peer's node id is allowed this very object.
    pub node_allowed: bool,
    /// The peer proved a secret of the root on this connection: that by which this node has it so.
    pub root: Option<Holding>,
    /// The object is the root, or what the root is bound to.
    pub is_root: bool,
    /// The block that the peer named mentions the object; `None` if it named none or it is not here.
    pub mentioned: Option<bool>,
    /// It came by the root's ticket, as far as that is still under way here. A tree may name what this node has from elsewhere.
    pub has_come: bool,
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Serve it.
    Allow,
    /// Do not, and say why.
    Refuse(&'static str),
    /// It is not here, as far as this ticket goes.
    Lacks,
}

/// Reason why nothing is served under a root that was not proved. Of a ticket whose holders do not pass on what they have the
/// same is said: a stranger does not learn who holds what.
pub const NOT_PROVED: &str = "the ticket is not known here or its secret was not proved";

/// The same where the ticket whose secret was proved expired.
pub const EXPIRED: &str = "the ticket has expired";
/// The same where it was withdrawn.
pub const WITHDRAWN: &str = "its sender took the ticket back";
/// The same where it is for one receiver, and for a few.
pub const TAKEN: [&str; 2] = [
    "the ticket was for one receiver, and another one came first",
    "the ticket was for a few receivers, and others came first",
];

/// What is said to whoever proved a secret by which nothing is served, or none.
pub const fn refusal(root: Option<Holding>) -> &'static str {
    match root {
        Some(Holding::Over(TicketEnd::Expired)) => EXPIRED,
        Some(Holding::Over(TicketEnd::Withdrawn)) => WITHDRAWN,
        Some(Holding::Over(TicketEnd::Taken { by_one })) => TAKEN[if by_one { 0 } else { 1 }],
        _ => NOT_PROVED,
    }
}

/// Decides about one request.
pub fn decide(facts: Facts) -> Decision {
    let is_served = facts.root.is_some_and(Holding::serves);
    match facts {
        Facts { node_allowed: true, .. } => Decision::Allow,
        Facts { root, .. } if !is_served => Decision::Refuse(refusal(root)),
        Facts { is_root: true, .. } => Decision::Allow,
        Facts { mentioned: Some(true), has_come: true, .. } => Decision::Allow,
        Facts { mentioned: Some(true), .. } => Decision::Lacks,
        Facts { mentioned: Some(false), .. } => Decision::Refuse("the ticket does not cover this object"),
        Facts { mentioned: None, .. } => Decision::Refuse("nothing was named that covers this object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(ticket_allows: bool, settings_allow: bool) -> Option<Holding> {
        Some(Holding::Given { ticket_allows, settings_allow })
    }

    fn holdings() -> Vec<Option<Holding>> {
        let given = [(false, false), (false, true), (true, false), (true, true)].map(|(t, s)| given(t, s));
        let over = [TicketEnd::Expired, TicketEnd::Withdrawn, TicketEnd::Taken { by_one: true }];
        let over = over.map(|over| Some(Holding::Over(over)));
        [&[None, Some(Holding::Issued)][..], &given, &over].concat()
    }

    #[test]
    fn the_whole_table() {
        for root in holdings() {
            for bits in 0..24u8 {
                let mentioned = [None, Some(false), Some(true)][usize::from(bits / 8)];
                let (node_allowed, is_root, has_come) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
                let is_served = root == Some(Holding::Issued) || root == given(true, true);
                let expected = node_allowed || is_served && (is_root || mentioned == Some(true) && has_come);
                let facts = Facts { node_allowed, root, is_root, mentioned, has_come };
                assert_eq!(decide(facts) == Decision::Allow, expected, "{facts:?}");
            }
        }
    }

    #[test]
    fn nobody_gets_in_by_default() {
        let stranger =
            Facts { node_allowed: false, root: None, is_root: true, mentioned: Some(true), has_come: true };
        assert!(matches!(decide(stranger), Decision::Refuse(_)));
    }

    #[test]
    fn a_refusal_does_not_tell_who_holds_what() {
        let ask = |root| {
            decide(Facts { node_allowed: false, root, is_root: true, mentioned: None, has_come: true })
        };
        for silent in [given(false, true), given(true, false)] {
            assert_eq!(ask(silent), ask(None));
        }
    }

    #[test]
    fn whoever_proved_the_secret_learns_how_the_ticket_ended() {
        let [one, several] = [true, false].map(|by_one| TicketEnd::Taken { by_one });
        let table = [(TicketEnd::Expired, EXPIRED), (TicketEnd::Withdrawn, WITHDRAWN)];
        for (over, why) in table.into_iter().chain([one, several].into_iter().zip(TAKEN)) {
            let root = Some(Holding::Over(over));
            let facts =
                Facts { node_allowed: false, root, is_root: true, mentioned: Some(true), has_come: true };
            assert_eq!(decide(facts), Decision::Refuse(why));
        }
    }

    #[test]
    fn terms_that_forbid_it_make_a_holding_that_serves_nobody() {
        let secret = |no_swarm| BoundSecret {
            secret: towpath_content::ticket::Secret([1; 16]),
            terms: towpath_content::ticket::Terms { expires: None, no_swarm },
        };
        for (no_swarm, settings_allow) in [(false, true), (true, true), (false, false), (true, false)] {
            let holding = GivenSecret { secret: secret(no_swarm), settings_allow }.holding();
            assert_eq!(holding.serves(), !no_swarm && settings_allow);
        }
    }
}
