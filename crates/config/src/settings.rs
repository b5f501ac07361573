//! Every field of the configuration, once: its type, default and purpose. Reading, the reference,
//! the example file and what `--check-config` prints are made from this list.

use std::net::SocketAddr;

use glob::Pattern;
use towpath_content::NodeId;
use towpath_protocol::COMPRESS;
use towpath_protocol::rules::Rules;

use super::source::{ConfigError, ConfigTable};
use super::value::{
    Bytes, Compression, ConfigRate, ConfigSeconds, ConfigSetting, Count, Directory, Label, LogLevel, Switch,
};

/// A field and its value, as people see it.
pub(super) struct Shown {
    pub(super) name: &'static str,
    /// Its documentation, a line for each line there.
    pub(super) about: &'static [&'static str],
    /// What it takes.
    pub(super) kind: String,
    /// Its value in TOML; `None` if it is absent.
    pub(super) value: Option<String>,
    /// A value to show when it is absent.
    pub(super) example: &'static str,
    /// Whether it takes effect when the configuration is read again.
    pub(super) is_live: bool,
}

/// A table of the file.
pub(super) trait Section: Default {
    /// Takes the fields that are given out of `table`.
    fn read(table: &mut ConfigTable<'_>) -> Result<Self, ConfigError>;

    /// All fields in their order.
    fn shown(&self) -> Vec<Shown>;
}

/// A struct of settings; `live` are those that take effect on reload, `start` the others.
macro_rules! settings {
    ($(#[doc = $doc:literal])+ struct $name:ident {
        $($(#[doc = $about:literal])+ $when:ident $field:ident: $type:ty = $default:expr,)+
    }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $about])+ pub $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl Section for $name {
            fn read(table: &mut ConfigTable<'_>) -> Result<Self, ConfigError> {
                table.expect(&[$(stringify!($field)),+]);
                Ok(Self { $($field: table.setting(stringify!($field))?.unwrap_or_else(|| $default),)+ })
            }

            fn shown(&self) -> Vec<Shown> {
                vec![$(Shown {
                    name: stringify!($field),
                    about: &[$($about),+],
                    kind: <$type>::kind(),
                    value: self.$field.show(),
                    example: <$type>::EXAMPLE,
                    is_live: is_live!($when),
                }),+]
            }
        }
    };
}

macro_rules! is_live {
    (live) => {
        true
    };
    (start) => {
        false
    };
}

settings! {
    /// What stands at the top of the file.
    struct General {
        /// Where peers are listened for. An empty list: all addresses of the machine, at the port of last time.
        start listen: Vec<SocketAddr> = Vec::new(),
        /// What goes out to peers in all, at most; 0 for no limit.
        live limit_rate: ConfigRate = ConfigRate(0),
        /// Nodes that may fetch everything that this service has, without a ticket.
        live allowed_nodes: Vec<NodeId> = Vec::new(),
        /// Directories whose files the daemon keeps in the index, as 'tow index' would, also when they change: absolute paths. Other file systems below them are not entered.
        live index: Vec<Directory> = Vec::new(),
        /// How much is logged on standard error. `-v` and `TOW_LOG` come before it.
        live log_level: LogLevel = LogLevel::Warn,
        /// How long transfers may go on when the service is asked to end. They resume when they are asked for again.
        live grace: ConfigSeconds = ConfigSeconds(10),
        /// Whether the daemon, and the far end of a copy, have the kernel refuse them what their work does not need: "on" as far as the kernel can, or "off". `TOW_SANDBOX` comes before it.
        start sandbox: Switch = Switch::On,
        /// Whether a copy over ssh that receives may tell the other side hashes and signatures of files beyond the destination, as older versions of what comes: "on" or "off".
        start bases_beyond: Switch = Switch::On,
        /// Directories that the daemon may write to, besides its own folders. An empty list: the person's home and all others, but the system's own (`/etc`, `/usr` and their like).
        start write_below: Vec<Directory> = Vec::new(),
    }
}

settings! {
    /// `[store]`
    struct StoreSettings {
        /// Bytes of objects that nobody holds a lease of, which are kept for the next who asks. What was unused longest goes first.
        live cache: Bytes = Bytes(10 << 30),
        /// Files of others that the index knows, at most; some 150 bytes each. The files themselves are never touched.
        live referred_files: Count = Count(4_000_000),
    }
}

settings! {
    /// `[limits]`
    struct Limits {
        /// Connections from peers at once. Each that is served costs a thread and some 2 MiB.
        live connections: Count = Count(256),
        /// Connections at once from one address, which of IPv6 is a network of 2^64 (/64). All of a /48 may have four times as many.
        live connections_per_address: Count = Count(32),
        /// Connections at once from one node.
        live connections_per_node: Count = Count(32),
        /// Connections at once whose peer has not proved yet who it is, some 100 KiB each. When there are more, those that say nothing go first, and of the address that has the most.
        live handshakes: Count = Count(64),
        /// Connections at once whose peer has shown no ticket yet, some 200 KiB each. When there are more, or no places at all, the oldest go first, of the address that has the most; all go after 30 seconds.
        live strangers: Count = Count(32),
        /// Connections at once to the socket of the local API.
        live local_connections: Count = Count(2048),
        /// Gets and puts at once, in all. A put in parts is one from its start until it is committed or given up.
        live transfers: Count = Count(256),
        /// Bytes that gets may hold in memory on their way to the disk, 32 MiB each. A get beyond is refused.
        live memory: Bytes = Bytes(2 << 30),
        /// Bytes of content that may be held in memory on their way to applications (`/v1/content`, `/v1/chunks`), over all of them. Half of it is divided evenly among `local_connections`, at least 8 KiB each, so that readers that stall keep nobody from reading.
        live content_memory: Bytes = Bytes(256 << 20),
        /// How long an application may read nothing of content that it asked for (`/v1/content`, `/v1/chunks`) before its connection is closed; 0 for ever.
        live reader_stall: ConfigSeconds = ConfigSeconds(3600),
        /// Bytes that stay free on a disk: with less, a transfer onto it is refused.
        live disk_free: Bytes = Bytes(0),
    }
}

settings! {
    /// `[processors]`
    struct ProcessorSettings {
        /// Compression of what crosses networks, with zstd: "never", also if the other side asks for it; "asked" by either side, as `tow cp -z` does, or used unasked while the network takes less than 40 MB/s and the data shrink; "always" tried, as if it were asked for.
        start compression: Compression = Compression::Asked,
        /// Names that do not pass this host, in or out: patterns with `*`, `?` and `[…]`, of the name alone, or, if the pattern has a slash, of a path in its tree or the end of one. Letters match in either case.
        start refuse_names: Vec<Pattern> = Vec::new(),
        /// Objects of more bytes do not pass; 0 for no limit.
        start refuse_larger: Bytes = Bytes(0),
        /// What its sender labels so does not pass.
        start refuse_labels: Vec<Label> = Vec::new(),
        /// The label that receivers are told of what this host serves.
        start label: Option<Label> = None,
    }
}

impl ProcessorSettings {
    /// Whether compression may be used at all.
    pub fn compresses(&self) -> bool {
        self.compression != Compression::Never
    }

    /// The capabilities that are asked for of the other side.
    pub fn wishes(&self) -> Vec<String> {
        let is_always = self.compression == Compression::Always;
        is_always.then(|| COMPRESS.to_owned()).into_iter().collect()
    }

    /// What is refused, and said of what is served.
    pub fn rules(&self) -> Rules {
        Rules {
            names: self.refuse_names.clone(),
            largest: Some(self.refuse_larger.0).filter(|largest| *largest > 0),
            labels: self.refuse_labels.iter().map(Label::to_string).collect(),
            own_label: self.label.as_ref().map(Label::to_string),
        }
    }
}

settings! {
    /// `[metrics]`
    struct Metrics {
        /// An address at which `GET /metrics` is answered without asking who it is: keep it on this machine. Absent: only at the socket of the local API.
        start listen: Option<SocketAddr> = None,
    }
}
