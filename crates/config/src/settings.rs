//! Every field of the configuration, once: its type, default and purpose. Reading, the reference,
//! the example file and what `--check-config` prints are made from this list.

use std::net::SocketAddr;

use glob::Pattern;
use towpath_content::NodeId;
use towpath_content::hint::PeerAddress;
use towpath_plugins::direct::LocalEnd;
use towpath_protocol::COMPRESS;
use towpath_protocol::rules::Rules;

use super::byte_place::{BytePlace, FilePath, ServerUrl};
use super::source::{ConfigError, ConfigTable};
use super::value::{
    Bytes, CacheAddress, Compression, ConfigRate, ConfigSeconds, ConfigSetting, Count, Directory, Label,
    LogLevel, Switch,
};

/// A field and its value, as people see it.
pub(super) struct Shown {
    pub(super) name: &'static str,
    /// Its documentation, a line for each line there.
    pub(super) about: &'static [&'static str],
    /// Kind of value that it takes.
    pub(super) kind: String,
    /// Its value in TOML; `None` if it is absent.
    pub(super) value: Option<String>,
    /// A value to show when it is absent.
    pub(super) example: &'static str,
    /// True if it takes effect when the configuration is read again.
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
    /// Fields at the top of the file.
    struct General {
        /// Addresses at which peers may connect. An empty list: all addresses of the machine, at the port of last time.
        start listen: Vec<SocketAddr> = Vec::new(),
        /// Rate of all that is sent to peers, at most; 0 for no limit.
        live limit_rate: ConfigRate = ConfigRate(0),
        /// This machine's interfaces, or addresses, that gets and copies go out by, all at once. One that isn't there brings nothing until it is. An empty list: the system chooses one.
        live bind: Vec<LocalEnd> = Vec::new(),
        /// Nodes that may fetch everything that this service has, without a ticket.
        live allowed_nodes: Vec<NodeId> = Vec::new(),
        /// Directories whose files the daemon indexes, as 'tow index' does, and again when they change. Absolute paths; other file systems below them are not entered.
        live index: Vec<Directory> = Vec::new(),
        /// How much is logged on standard error. `-v` and `TOW_LOG` override it.
        live log_level: LogLevel = LogLevel::Warn,
        /// How long transfers may continue when the service is asked to end. They resume when they are requested again.
        live grace: ConfigSeconds = ConfigSeconds(10),
        /// Whether the kernel refuses the daemon, and the far end of a copy, what their work does not need: "on" as far as the kernel can, or "off". `TOW_SANDBOX` overrides it.
        start sandbox: Switch = Switch::On,
        /// Whether the receiver of a copy over ssh may send hashes and signatures of files outside the destination: "on" or "off". They serve as older versions of new files.
        start bases_beyond: Switch = Switch::On,
        /// Directories that the daemon may write to, besides its own folders. An empty list: your home and all others, except those of the system (`/etc`, `/usr` and similar ones).
        start write_below: Vec<Directory> = Vec::new(),
    }
}

settings! {
    /// `[store]`
    struct StoreSettings {
        /// Bytes of objects without a lease that are kept for later requests. Objects that were unused longest go first.
        live cache: Bytes = Bytes(10 << 30),
        /// Files outside the store that the index knows, at most; some 150 bytes each. The files themselves are never touched.
        live referred_files: Count = Count(4_000_000),
        /// Place of the bytes that the daemon keeps itself: streams that were put, objects that came for applications. A directory, say on another disk, or a bucket in object storage, "s3://BUCKET/PREFIX". Each daemon needs a place of its own. Absent: its data folder. The index stays there in any case.
        start bytes: Option<BytePlace> = None,
        /// URL of the server of object storage, if it is not Amazon's.
        start bytes_endpoint: Option<ServerUrl> = None,
        /// Region of the bucket. Absent: "us-east-1".
        start bytes_region: Option<Label> = None,
        /// File with the keys for object storage, that only its owner can read, in the form of `~/.aws/credentials`. Absent: the environment has `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`.
        start bytes_credentials: Option<FilePath> = None,
        /// Memory for what is read from that place ahead of those who ask; at least 8M are used.
        start bytes_read_ahead: Bytes = Bytes(64 << 20),
        /// Objects of up to so many bytes are fetched whole from that place for a moment, when a receiver that has a similar file asks how they are cut. Larger ones come without that.
        start bytes_spool: Bytes = Bytes(256 << 20),
    }
}

settings! {
    /// `[limits]`
    struct Limits {
        /// Connections from peers at once. Each costs a file descriptor and some 64 KiB, and up to 2 MiB more while data are sent to it.
        live connections: Count = Count(4096),
        /// Connections at once from one address. An IPv6 /64 counts as one address. A /48 may have four times as many.
        live connections_per_address: Count = Count(32),
        /// Connections at once from one node.
        live connections_per_node: Count = Count(32),
        /// Connections at once whose peer has not proved yet who it is, some 100 KiB each. Over the limit a silent one is closed, of the address that has the most.
        live handshakes: Count = Count(64),
        /// Connections at once whose peer has shown no ticket yet, some 200 KiB each. Over this or another limit the oldest one is closed, of the address that has the most. All are closed after 30 seconds.
        live strangers: Count = Count(32),
        /// Connections at once to the socket of the local API.
        live local_connections: Count = Count(2048),
        /// Gets, puts and copies at once, in all. A put in parts counts from its start until it is committed or abandoned.
        live transfers: Count = Count(256),
        /// Copies at once that the daemon makes (`--by-daemon`). They count among `transfers` too.
        live copies: Count = Count(16),
        /// Bytes that gets and copies may hold in memory before they are written, 32 MiB each. A further one is refused.
        live memory: Bytes = Bytes(2 << 30),
        /// Bytes of content in memory for all applications (`/v1/content`, `/v1/chunks`). Half of it is divided evenly among `local_connections`, at least 8 KiB each. So readers that stall do not stop others.
        live content_memory: Bytes = Bytes(256 << 20),
        /// How long an application may read nothing of content that it requested (`/v1/content`, `/v1/chunks`). After that its connection is closed; 0 for ever.
        live reader_stall: ConfigSeconds = ConfigSeconds(3600),
        /// Bytes that stay free on a disk. With less, a transfer onto it is refused.
        live disk_free: Bytes = Bytes(0),
    }
}

settings! {
    /// `[processors]`
    struct ProcessorSettings {
        /// Compression on networks, with zstd. "never": not even if the other side asks. "asked": if either side wants it (`tow cp -z`), or by itself while the network is slower than 40 MB/s and the data shrink. "always": try every time.
        start compression: Compression = Compression::Asked,
        /// Names that do not pass this host, in or out: patterns with `*`, `?` and `[…]`. A pattern with a slash matches a path in its tree or the end of one, else the name alone. Letters match in either case.
        start refuse_names: Vec<Pattern> = Vec::new(),
        /// Objects of more bytes do not pass; 0 for no limit.
        start refuse_larger: Bytes = Bytes(0),
        /// Objects with one of these labels do not pass.
        start refuse_labels: Vec<Label> = Vec::new(),
        /// The label that receivers see on everything that this host serves.
        start label: Option<Label> = None,
    }
}

impl ProcessorSettings {
    /// True if compression may be used at all.
    pub fn compresses(&self) -> bool {
        self.compression != Compression::Never
    }

    /// The capabilities that are asked for of the other side.
    pub fn wishes(&self) -> Vec<String> {
        let is_always = self.compression == Compression::Always;
        is_always.then(|| COMPRESS.to_owned()).into_iter().collect()
    }

    /// Rules for what is refused, and said of what is served.
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
    /// `[sharing]`
    struct Sharing {
        /// Whether the daemon serves what it got by a ticket to others who have that ticket: "on" or "off". It does so, also after its restart, unless the ticket forbids it, ends or is taken back.
        live pass_on: Switch = Switch::Off,
        /// Whether `tow get` serves others while it runs, without a daemon or by it: "on" or "off". They get no more bytes than it took itself, and less if it gets less by that; nothing if the ticket forbids it. `tow get --no-upload` turns it off for once.
        live while_getting: Switch = Switch::On,
        /// Rate of all that is so passed on, at most; 0 for no limit but `limit_rate`.
        live upload_rate: ConfigRate = ConfigRate(0),
    }
}

settings! {
    /// `[site_cache]`
    struct SiteCache {
        /// The cache that is asked first by gets, as its `tow daemon --cache` prints it. Absent: none.
        live address: Option<CacheAddress> = None,
        /// Whether this daemon is a cache: "on" or "off". It fetches what it is handed tickets for, and serves that to whoever has the ticket. `tow daemon --cache` turns it on.
        live serve: Switch = Switch::Off,
        /// Nodes that may have this cache fetch something, beside `allowed_nodes`. They get nothing else by that.
        live machines: Vec<NodeId> = Vec::new(),
        /// Whether any node that has a ticket may: "on" or "off". Only for a cache that no stranger can reach.
        live anyone: Switch = Switch::Off,
    }
}

settings! {
    /// `[rendezvous]`
    struct RendezvousSettings {
        /// Servers where those who have a ticket of this machine find it, wherever both are, as `tow rendezvous` prints them. Tickets name them; gets ask them, too. An empty list: none. `TOW_RENDEZVOUS`, a list with commas, takes its place.
        live servers: Vec<PeerAddress> = Vec::new(),
        /// Relays at which this machine waits to be called by those who can't reach it otherwise, as `tow relay` prints them. Tickets name them. What comes by them is encrypted from end to end. An empty list: none.
        start relays: Vec<PeerAddress> = Vec::new(),
        /// File with the pass for these relays, which only its owner can read. Absent: none is shown.
        start relay_pass: Option<FilePath> = None,
        /// Whether short codes are found on this machine's own network, by multicast: "on" or "off". A code that waits is announced under a name of chance; nothing is while none waits.
        live lan: Switch = Switch::On,
    }
}

settings! {
    /// `[metrics]`
    struct Metrics {
        /// An address that answers `GET /metrics` to anybody: keep it on this machine. Absent: only the socket of the local API answers.
        start listen: Option<SocketAddr> = None,
    }
}
