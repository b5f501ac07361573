//! The machine that one side of a copy runs on, as its service has it.

use std::path::PathBuf;
use std::sync::Arc;

use towpath_link::Identity;
use towpath_plugins::direct::LocalEnd;
use towpath_plugins::registry::Node;
use towpath_protocol::PeerConfig;
use towpath_protocol::processors::Processors;
use towpath_ssh::ciphers::AesHosts;
use towpath_store::DiskStore;

#[cfg(any(test, feature = "fuzzing"))]
use crate::error::EntryFault;
use crate::events::Words;

/// The plain facts.
#[cfg(any(test, feature = "fuzzing"))]
pub fn plain(fault: &EntryFault<'_>) -> (String, Option<String>) {
    (fault.to_string(), None)
}

/// Parts of the service that a copy runs in.
#[derive(Clone)]
pub struct Host {
    /// Its key.
    pub identity: Identity,
    /// Its store and index.
    pub store: Arc<DiskStore>,
    /// Processors that every chunk passes.
    pub processors: Processors,
    /// The plugins that contents come by; the way to the other side is each `direct` among them.
    pub plugins: Node,
    /// Encodings of data that it wishes for, by name.
    pub wishes: Vec<String>,
    /// The folder of resume records.
    pub resume: PathBuf,
    /// The folder with the contents that went to each node.
    pub shares: PathBuf,
    /// Hosts over ssh that have instructions for AES.
    pub aes_hosts: AesHosts,
    /// True if bases may be found outside of the destination.
    pub bases_beyond: bool,
    /// Links of this machine that copies to and from others go out by, at the person's side; none: the system chooses.
    pub links: Vec<LocalEnd>,
    /// Mode bits that new files do not get, if not those of this process.
    pub umask: Option<u32>,
    /// Texts that people read.
    pub words: Words,
}

impl Host {
    /// Settings of its connections, whoever dials.
    pub fn peer_config(&self) -> PeerConfig {
        let (processors, wishes) = (self.processors.clone(), self.wishes.clone());
        PeerConfig { processors, wishes, ..PeerConfig::default() }
    }

    /// One whose key and store lie below `folder`.
    #[cfg(test)]
    pub fn below(folder: &std::path::Path) -> Arc<Self> {
        let (state, data) = (folder.join("state"), folder.join("data"));
        std::fs::create_dir_all(folder).unwrap();
        let store = Arc::new(DiskStore::open(&state, &data).unwrap());
        Arc::new(Self {
            identity: Identity::load_or_create(&folder.join("key")).unwrap(),
            store,
            processors: Processors::default(),
            plugins: towpath_plugins::registry::default_tree(),
            wishes: Vec::new(),
            resume: state.join("resume"),
            shares: state.join("shares"),
            aes_hosts: AesHosts::new(state.join("aes-hosts")),
            bases_beyond: true,
            links: Vec::new(),
            umask: None,
            words: plain,
        })
    }
}
