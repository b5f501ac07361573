//! The hellos: what this side says first, and what the peer's says that it can do.

use super::config::SessionConfig;
use super::effect::{Effect, Encoded};
use crate::processor::Encoding;
use crate::wire::{self, Body, Hello};
use crate::{compression, control};

/// Bytes of a link's name, at most: an address has 45.
const MAX_LINK: usize = 45;

/// Optional capabilities of a peer.
#[derive(Debug, Clone, Copy, Default)]
pub struct Greeting {
    /// Answers questions for recipes, and wants by runs of bytes.
    pub has_recipes: bool,
    /// Answers runs of bytes that have a base.
    pub has_deltas: bool,
    /// Answers questions for samples.
    pub has_samples: bool,
    /// Takes the word that a ticket was withdrawn.
    pub has_withdrawals: bool,
    /// Takes the word that this side serves what it gets, and who else does.
    pub has_holders: bool,
    /// Can be asked to fetch what a ticket names.
    pub brings: bool,
    /// Answers what it is asked, and takes the word that no more is needed.
    pub answers: bool,
    /// Its encoded payloads tell their lengths.
    pub in_parts: bool,
    /// What it sends is paced by a rate that it measures: a packet that is lost does not slow it down.
    pub paces: bool,
    /// Number of this connection among those of its link, as the side says that named the link; 0: there are no others.
    pub link_number: u32,
}

impl Greeting {
    fn of(hello: &Hello) -> Self {
        let has = |name: &str| hello.capabilities.iter().any(|capability| capability == name);
        Self {
            has_recipes: has(wire::RECIPES),
            has_deltas: has(wire::DELTAS),
            has_samples: has(wire::SAMPLES),
            has_withdrawals: has(wire::WITHDRAWALS),
            has_holders: has(wire::HOLDERS),
            brings: has(wire::BRINGS),
            answers: has(wire::ANSWERS),
            in_parts: has(wire::PARTS),
            paces: has(wire::PACES),
            link_number: hello.link_number,
        }
    }

    /// Takes the peer's hello: what it can do, and the encoding that the answering half may use.
    pub(super) fn taken(config: &SessionConfig, hello: &Hello) -> Result<(Self, Effect), String> {
        if hello.version != wire::VERSION {
            let (theirs, ours) = (hello.version, wire::VERSION);
            return Err(format!("speaks version {theirs} of the protocol, this program speaks {ours}"));
        }
        let has = |name: &str| hello.capabilities.iter().any(|capability| capability == name);
        let wished = |wish: &str| has(wish) || config.wishes.iter().any(|own| own == wish);
        let own = config.source.path().map_or(0, |_| config.link_number);
        let greeting = Self { link_number: own.max(hello.link_number), ..Self::of(hello) };
        let in_parts = greeting.in_parts;
        let asked = |ours: &dyn Encoding| wished(ours.wish());
        // A peer that takes compressed data in parts has nothing against them where they are quicker.
        let own_choice = |ours: &dyn Encoding| in_parts && ours.capability() == compression::CAPABILITY;
        let taken = || config.processors.encodings().filter(|(_, ours)| has(ours.capability()));
        let agreed = |number, is_asked| Encoded { number, is_asked, in_parts };
        let by_wish = taken().find(|(_, ours)| asked(*ours)).map(|(number, _)| agreed(number, true));
        let by_choice =
            || taken().find(|(_, ours)| own_choice(*ours)).map(|(number, _)| agreed(number, false));
        let (encoding, control) = (by_wish.or_else(by_choice), has(control::CAPABILITY));
        Ok((greeting, Effect::Greeted { control, encoding }))
    }
}

/// The link that a hello names. It is shown to people.
pub(super) fn link_of(hello: &Hello) -> Option<&str> {
    let is_name = |name: &&str| {
        (1..=MAX_LINK).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
    };
    Some(&*hello.link).filter(is_name)
}

/// The first message of this side.
pub(super) fn hello(config: &SessionConfig) -> Body {
    let encodings: Vec<&str> =
        config.processors.encodings().map(|(_, encoding)| encoding.capability()).collect();
    // Every version knows what its number stands for.
    let numbered = encodings.iter().filter(|name| **name != compression::CAPABILITY);
    let control = config.control.then_some(control::CAPABILITY);
    let answers = config.serves.then_some(wire::ANSWERS);
    let paces = config.paces.then_some(wire::PACES);
    let wishes = config.wishes.iter().map(String::as_str);
    let link = config.source.path().filter(|_| config.tells_link);
    let named = wire::CAPABILITIES
        .into_iter()
        .chain(encodings.iter().copied())
        .chain(control)
        .chain(answers)
        .chain(paces)
        .chain(wishes);
    Body::Hello(Hello {
        version: wire::VERSION,
        capabilities: named.map(String::from).collect(),
        software: concat!("towpath ", env!("CARGO_PKG_VERSION")).into(),
        encodings: numbered.map(|name| (*name).into()).collect(),
        link: link.unwrap_or_default().into(),
        link_number: link.map_or(0, |_| config.link_number),
    })
}
