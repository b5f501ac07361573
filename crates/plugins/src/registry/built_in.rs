//! The plugins of this build: how each is called, set and made.

use std::sync::Arc;
use std::time::Duration;

use towpath_reuse::adaptive::Adaptive;

use super::{Build, Field, FieldKind, Plugin, PluginParts};
use crate::direct::{self, DirectConfig};
use crate::takeover::Names;
use crate::{Cascade, Direct, HintedNodes, Local, Many, Takeover};

/// All of them, by name.
pub(super) static ALL: [&Plugin; 7] = [&ADAPTIVE, &CASCADE, &DEALER, &DIRECT, &HINTS, &LOCAL, &TAKEOVER];

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
    ],
    build: Build::Source(|node, builder| {
        // What they have is asked for here, and they are told the end from here.
        let others = builder.remote.len();
        let children = builder.children(node, "of");
        builder.remote.truncate(others);
        let finders = builder.finders(node, "finders");
        builder.remote(Arc::new(Many::new(children, finders)))
    }),
};

pub(super) static HINTS: Plugin = Plugin {
    name: "hints",
    scheme: None,
    about: "Finds the services that a ticket's hints name beside the one that issued it.",
    fields: &[],
    build: Build::Finder(|_, builder| {
        let (identity, peer) = (builder.parts.identity.clone(), builder.parts.peer.clone());
        let host = builder.parts.host.clone();
        HintedNodes::new(Box::new(move |node| {
            let config = DirectConfig { peer: peer.clone(), ..DirectConfig::default() };
            Arc::new(Direct::new(identity.clone(), config, host.clone()).to(node))
        }))
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
        if let Some(way) = builder.parts.way.clone() {
            return builder.remote(way);
        }
        let seconds = |name| Duration::from_secs(node.number(name));
        let mut config = DirectConfig { peer: builder.parts.peer.clone(), ..DirectConfig::default() };
        let count = |name| usize::try_from(node.number(name)).unwrap_or(1);
        (config.connections, config.most_connections) = (count("connections"), count("most_connections"));
        config.timeouts.connect = seconds("connect_seconds");
        config.timeouts.handshake = seconds("handshake_seconds");
        let (identity, host) = (builder.parts.identity.clone(), builder.parts.host.clone());
        builder.remote(Arc::new(Direct::new(identity, config, host)))
    }),
};

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
