//! The plugins of this build: how each is called, set and made.

use std::sync::Arc;
use std::time::Duration;

use towpath_link::tcp::LocalEnd;
use towpath_mirror::web_url::shown;
use towpath_mirror::{MirrorFinder, MirrorPlace, NamedBy};
use towpath_reuse::adaptive::Adaptive;
use towpath_transfer::Source;
use towpath_transfer::finder::Finder;

use super::{Build, Field, FieldKind, Node, Plugin, PluginParts, TreeBuilder};
use crate::direct::further_ways::{FurtherWays, MostWays};
use crate::direct::relayed::BY_RELAY;
use crate::direct::{self, DirectConfig, LedTo};
use crate::hinted::HintedWay;
use crate::takeover::Names;
use crate::{Cascade, Direct, HintedNodes, Local, Many, Takeover};

/// All of them, by name.
pub(super) static ALL: [&Plugin; 8] =
    [&ADAPTIVE, &CASCADE, &DEALER, &DIRECT, &HINTS, &LOCAL, &MIRRORS, &TAKEOVER];

pub(super) static ADAPTIVE: Plugin = Plugin {
    name: "adaptive",
    scheme: None,
    about: "Searches this machine's disk while its plugin is slower, if the transfer may.",
    fields: &[Field {
        name: "of",
        kind: FieldKind::Plugin,
        about: "The plugin that fetches what is not found.",
    }],
    build: Build::Source(|node, builder| {
        let network = builder.child(node, "of");
        let Some(search) = builder.parts.search.clone() else { return network };
        let adaptive = Adaptive::new(network, search);
        builder.adaptive = Some(Arc::clone(&adaptive));
        adaptive
    }),
};

pub(super) static CASCADE: Plugin = Plugin {
    name: "cascade",
    scheme: None,
    about: "Asks its plugins in their order. What one does not have is requested from the next.",
    fields: &[Field { name: "of", kind: FieldKind::Plugins, about: "The plugins to ask, cheapest first." }],
    build: Build::Source(|node, builder| Arc::new(Cascade::new(builder.children(node, "of")))),
};

pub(super) static DEALER: Plugin = Plugin {
    name: "dealer",
    scheme: None,
    about: "Draws from its plugins, and from what its finders find, at once: each brings what it is best at.",
    fields: &[
        Field {
            name: "of",
            kind: FieldKind::Plugins,
            about: "The plugins to draw from, of which each has all that is asked for.",
        },
        Field {
            name: "finders",
            kind: FieldKind::Finders,
            about: "What finds further sources while a transfer runs.",
        },
        Field {
            name: "most_askers",
            kind: FieldKind::Number { least: 1, most: 2, default: 2 },
            about: "Sources that are asked for the same bytes at once, at most. 1: nothing comes twice, and the last bytes wait for whoever was asked, however slow.",
        },
    ],
    build: Build::Source(|node, builder| {
        // What they have is asked for here, and they are told the end from here.
        let others = builder.remote.len();
        let mut further = Vec::new();
        let each = node.children("of").iter().flat_map(|child| match child.plugin.name {
            // Each way counts for itself.
            "direct" => {
                let (ways, finder) = direct_ways(child, builder);
                further.extend(finder);
                ways
            }
            _ => vec![builder.node(child)],
        });
        let children = each.collect();
        builder.remote.truncate(others);
        let mut finders = builder.finders(node, "finders");
        finders.append(&mut further);
        let many = Many::behind(builder.parts.near.clone(), children, finders);
        builder.remote(Arc::new(if count(node, "most_askers") == 1 { many.asking_once() } else { many }))
    }),
};

pub(super) static HINTS: Plugin = Plugin {
    name: "hints",
    scheme: None,
    about: "Finds the services that a ticket's hints name beside the one that issued it, and the relays where services wait.",
    fields: &[],
    build: Build::Finder(|_, builder| {
        let (identity, host) = (builder.parts.identity.clone(), builder.parts.host.clone());
        let config = DirectConfig { peer: builder.parts.peer.clone(), ..DirectConfig::default() };
        let ways = ways(&config, &builder.parts.from);
        let near = builder.parts.near.as_ref().map(|near| near.node);
        // A further circuit is no further way, and one that can't be made keeps what it was asked for waiting.
        let mut relayed =
            DirectConfig { is_relayed: true, connections: 1, most_connections: 1, ..config.clone() };
        relayed.peer.way = Some(BY_RELAY.into());
        let called_us = host.clone();
        HintedNodes::new(
            Box::new(move |node, way| {
                // It is there already, in front.
                if near == Some(node) {
                    return Vec::new();
                }
                let direct = |config: &DirectConfig| -> Arc<dyn Source> {
                    Arc::new(Direct::new(identity.clone(), config.clone(), host.clone()).to(node))
                };
                match way {
                    HintedWay::Dialled => ways.iter().map(direct).collect(),
                    HintedWay::Relayed => vec![direct(&relayed)],
                }
            }),
            called_us,
        )
    }),
};

pub(super) static MIRRORS: Plugin = Plugin {
    name: "mirrors",
    scheme: Some("https"),
    about: "Finds web servers that hold the files: those that the person and the ticket name, and its own.",
    fields: &[Field {
        name: "urls",
        kind: FieldKind::Texts,
        about: "Further ones: of a folder in which a tree's files lie, or with {oid} for an object's id.",
    }],
    build: Build::Finder(|node, builder| {
        let mut known = builder.parts.mirrors.clone();
        known.places.extend(node.texts("urls").iter().filter_map(|url| {
            let place = MirrorPlace::new(url);
            let place = place.inspect_err(|why| {
                tracing::warn!(url = shown(url), %why, "a configured mirror is left out");
            });
            Some((place.ok()?, NamedBy::Person))
        }));
        Arc::new(MirrorFinder::new(known))
    }),
};

pub(super) static DIRECT: Plugin = Plugin {
    name: "direct",
    scheme: Some(direct::SCHEME),
    about: "Fetches objects from the service that issued the ticket, at the addresses in it.",
    fields: &[
        Field {
            name: "connections",
            kind: FieldKind::Number { least: 1, most: 16, default: 1 },
            about: "Connections to the other service for each transfer, at first.",
        },
        Field {
            name: "most_connections",
            kind: FieldKind::Number { least: 1, most: 16, default: 16 },
            about: "Connections at most. More are tried, and kept while they are faster.",
        },
        Field {
            name: "most_addresses",
            kind: FieldKind::Number { least: 1, most: 8, default: 4 },
            about: "Its addresses at once, at most, within a `dealer`. Further ones are tried, and kept if they are faster.",
        },
        Field {
            name: "most_links",
            kind: FieldKind::Number { least: 1, most: 4, default: 2 },
            about: "This machine's lines at once, at most, within a `dealer` and where `bind` names none. Further ones that lead to the service are tried, and kept if they are faster. 1: only what the system chooses.",
        },
        Field {
            name: "connect_seconds",
            kind: FieldKind::Seconds { least: 1, most: 600, default: 10 },
            about: "How long an address may take to answer.",
        },
        Field {
            name: "handshake_seconds",
            kind: FieldKind::Seconds { least: 1, most: 600, default: 10 },
            about: "How long the other service may take to prove who it is.",
        },
    ],
    build: Build::Source(|node, builder| {
        // Nobody deals out between several addresses here.
        let (mut ways, _) = direct_ways(node, builder);
        let source = if ways.len() == 1 { ways.pop() } else { None };
        builder.remote(source.unwrap_or_else(|| Arc::new(Many::new(ways, Vec::new()))))
    }),
};

/// Ways to one service, and what finds further ones.
type DirectWays = (Vec<Arc<dyn Source>>, Option<Arc<dyn Finder>>);

/// The ways to the service that issued the ticket: the one that stands already, or one from each end of this machine that is named.
/// Where none is, what finds further ways to it.
fn direct_ways(node: &Node, builder: &TreeBuilder<'_>) -> DirectWays {
    let config = direct_config(node, builder);
    let (identity, host) = (builder.parts.identity.clone(), builder.parts.host.clone());
    let direct = |config| Arc::new(Direct::new(identity.clone(), config, host.clone()));
    let most = MostWays { addresses: count(node, "most_addresses"), links: count(node, "most_links") };
    if let Some(first) = builder.parts.way.clone() {
        let (ways, has_root) = (vec![Arc::clone(&first)], false);
        let further = builder.parts.led.clone().filter(|_| most.all() > 1).map(|led| {
            Arc::new(FurtherWays { first, led, config, identity, host, most, has_root }) as Arc<dyn Finder>
        });
        return (ways, further);
    }
    if !builder.parts.from.is_empty() || most.all() == 1 {
        let ways = ways(&config, &builder.parts.from).into_iter();
        return (ways.map(|config| direct(config) as Arc<dyn Source>).collect(), None);
    }
    let (first, has_root) = (direct(config.clone()), true);
    let way = Arc::clone(&first);
    let (ways, led): (_, LedTo) = (vec![Arc::clone(&first) as _], Arc::new(move || way.led()));
    (ways, Some(Arc::new(FurtherWays { first, led, config, identity, host, most, has_root })))
}

fn direct_config(node: &Node, builder: &TreeBuilder<'_>) -> DirectConfig {
    let seconds = |name| Duration::from_secs(node.number(name));
    let mut config = DirectConfig { peer: builder.parts.peer.clone(), ..DirectConfig::default() };
    config.connections = count(node, "connections");
    config.most_connections = count(node, "most_connections");
    config.dial.timeouts.connect = seconds("connect_seconds");
    config.dial.timeouts.handshake = seconds("handshake_seconds");
    config
}

fn count(node: &Node, name: &str) -> usize {
    usize::try_from(node.number(name)).unwrap_or(1)
}

/// The same from each of these ends of this machine; from any if none is named.
fn ways(config: &DirectConfig, from: &[LocalEnd]) -> Vec<DirectConfig> {
    let way = |end: &LocalEnd| {
        let mut way = config.clone();
        (way.dial.from, way.peer.way) = (Some(end.clone()), Some(end.to_string()));
        way
    };
    if from.is_empty() { vec![config.clone()] } else { from.iter().map(way).collect() }
}

pub(super) static LOCAL: Plugin = Plugin {
    name: "local",
    scheme: None,
    about: "Uses objects that are on this machine already, if that reveals nothing to a stranger.",
    fields: &[],
    build: Build::Source(|_, builder| {
        let PluginParts { store, allow, .. } = builder.parts;
        builder.local(Arc::new(Local::new(Arc::clone(store), Arc::clone(allow))))
    }),
};

pub(super) static TAKEOVER: Plugin = Plugin {
    name: "takeover",
    scheme: None,
    about: "Asks the better one of two plugins, and the first one while the better one fails.",
    fields: &[
        Field {
            name: "first",
            kind: FieldKind::Plugin,
            about: "The plugin to ask while the better one fails.",
        },
        Field { name: "better", kind: FieldKind::Plugin, about: "The plugin to ask unless it fails." },
    ],
    build: Build::Source(|node, builder| {
        let name = |field| node.children(field).first().map_or("", |child| child.plugin.name);
        let names = Names { first: name("first"), better: name("better") };
        let takeover = Takeover::new(builder.child(node, "first"), names);
        takeover.offer(builder.child(node, "better"));
        takeover
    }),
};
