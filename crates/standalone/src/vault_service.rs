//! A server of vaults, as a program of its own (`tow vault serve`).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::{CancellationToken, DropGuard};
use towpath_api::{ApiError, ErrorKind};
use towpath_byte_store::{ByteStore, LocalFiles};
use towpath_content::NodeId;
use towpath_link::Identity;
use towpath_rendezvous::{ServerPlace, listening};
use towpath_vault_protocol::PROTOCOL;
use towpath_vault_server::{VaultError, VaultFolder, VaultLimits, VaultRules, VaultServer};

use crate::public_server::{bind, reachable};

/// The port of a server that is told no other.
pub const PORT: u16 = 4434;
/// Folder of the packs, in that of the vaults.
const PACKS: &str = "packs";

/// A server that listens; dropping it ends it.
#[derive(Debug)]
pub struct VaultService {
    places: Vec<ServerPlace>,
    _end: DropGuard,
}

impl VaultService {
    /// Serves the vaults in `folder` on `addresses`, or on all of the machine, as `identity`. Packs lie in `packs`, or in the folder, too.
    pub async fn start(
        identity: &Identity,
        addresses: &[SocketAddr],
        folder: &Path,
        packs: Option<Arc<dyn ByteStore>>,
        rules: VaultRules,
    ) -> Result<Self, ApiError> {
        let (path, owned) = (folder.to_owned(), identity.clone());
        // A bucket is asked whose it is, and its calls block.
        let opened = tokio::task::spawn_blocking(move || open(owned, &path, packs, rules)).await;
        let opened = opened.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
        let server = opened.map_err(|error| failed(folder, &error))?;
        let everywhere = [SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), PORT)];
        let (mut places, ending) = (Vec::new(), CancellationToken::new());
        for address in if addresses.is_empty() { &everywhere } else { addresses } {
            let listener = bind(*address, identity, &[PROTOCOL]).await?;
            let local = listener.address();
            let local = local.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()))?;
            let node = identity.node_id();
            places.extend(reachable(local).map(|address| ServerPlace { node, address: address.to_string() }));
            let (server, token) = (Arc::clone(&server), ending.clone());
            tokio::spawn(listening::accept(listener, ending.clone(), move |connection, _| {
                Arc::clone(&server).serve(connection, token.clone())
            }));
        }
        Ok(Self { places, _end: ending.drop_guard() })
    }

    /// Where it can be reached, best first.
    pub fn places(&self) -> &[ServerPlace] {
        &self.places
    }
}

fn open(
    identity: Identity,
    folder: &Path,
    packs: Option<Arc<dyn ByteStore>>,
    rules: VaultRules,
) -> Result<Arc<VaultServer>, VaultError> {
    let made = std::fs::create_dir_all(folder);
    made.map_err(|source| VaultError::System { what: "the folder of the vaults", source })?;
    let packs = packs.unwrap_or_else(|| Arc::new(LocalFiles::new(&folder.join(PACKS))));
    VaultFolder::open(folder, packs, identity, rules).map(VaultServer::new)
}

fn failed(folder: &Path, error: &VaultError) -> ApiError {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    ApiError::new(ErrorKind::Failed, format!("{}: {error}{cause}", folder.display()))
}

/// Who may make vaults here, and how many bytes one may have: nobody's choice is an error.
pub fn vault_rules(makers: &[String], public: bool, quota: Option<u64>) -> Result<VaultRules, ApiError> {
    let node = |text: &String| {
        let wrong = format!("'{text}' is no node: 64 hexadecimal digits");
        text.parse::<NodeId>().map_err(|_| ApiError::new(ErrorKind::Usage, wrong))
    };
    let makers = makers.iter().map(node).collect::<Result<_, _>>()?;
    let limits = quota.map_or(VaultLimits::default(), |bytes| VaultLimits { bytes });
    Ok(VaultRules { makers, public, limits, read_only: false })
}
