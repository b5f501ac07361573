//! Which vault a command is about, and the way to it; `tow vault init` and `join`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tokio::runtime::Handle;
use towpath_api::{ApiError, ErrorKind};
use towpath_config::node_at;
use towpath_service::state::identity;
use towpath_vault::Identity;
use towpath_vault::acceptance::{AcceptedHead, accept};
use towpath_vault::client::VaultClient;
use towpath_vault::drawing::KnownHolders;
use towpath_vault::error::VaultClientError;
use towpath_vault::format::{NodeId, VaultId};
use towpath_vault::head::{TrustedNodes, VaultHead};
use towpath_vault::keys::{PassphraseCost, Unlock, VaultKeys, WrappedKeys};
use towpath_vault::local::{LocalVault, vault_id};
use towpath_vault::network::NetworkServer;
use towpath_vault::server::{RemoteVault, ServerError};
use towpath_vault::share::VaultInvitation;
use towpath_vault::uncommitted::{discard, does_wait, open_looking, open_unreachable};

use super::errors::{api_error, usage};
use super::holders::use_holders;
use super::passphrase::unlock;
use crate::commands::Context;

/// Said before anything is written.
const WARNING: &str = "tow: whoever loses the passphrase (or the key file) loses the data: nobody can open the vault without it";

/// Which vault.
#[derive(Debug, Args)]
pub struct WhichVault {
    /// The vault, by its id or the id's first digits [default: the only one of this machine]
    #[arg(long, value_name = "ID", global = true)]
    vault: Option<String>,
    /// File with 32 random bytes or more, in the place of a passphrase
    #[arg(long, value_name = "FILE", global = true)]
    key_file: Option<PathBuf>,
}

/// Make a vault on a server
///
/// The vault's id is a line on standard output. Nothing is written before it was said that a lost passphrase is data lost.
#[derive(Debug, Args)]
pub struct VaultInit {
    /// The server, as 'tow vault serve' prints it
    #[arg(value_name = "NODE@HOST:PORT")]
    server: String,
}

/// Use a vault from this machine, too, or again; or one that another person shares
///
/// Your own vault: the server and the vault's id; its passphrase (or key file) is enough. Another person's: the invitation that their
/// 'tow vault share' tells. You choose a passphrase of your own, and a member id is printed. They say: tow vault share MEMBER.
#[derive(Debug, Args)]
pub struct VaultJoin {
    /// The server, as 'tow vault serve' prints it, or an invitation
    #[arg(value_name = "NODE@HOST:PORT | INVITATION")]
    server: String,
    /// The vault's id, all of it
    #[arg(value_name = "ID")]
    id: Option<String>,
}

#[derive(Debug, Serialize)]
struct ToldWaiting {
    event: &'static str,
    vault: String,
    server: String,
    member: String,
}

#[derive(Debug, Serialize)]
struct ToldVault {
    event: &'static str,
    vault: String,
    server: String,
    version: u64,
}

/// A server's node and address.
pub struct VaultPlace {
    pub node: NodeId,
    pub address: String,
}

impl VaultPlace {
    pub fn read(text: &str) -> Result<Self, ApiError> {
        let place = node_at(text).and_then(|place| Some(Self { node: place.node?, address: place.address }));
        place.ok_or_else(|| usage(format!("'{text}' is not NODE@HOST:PORT, as 'tow vault serve' prints it")))
    }

    fn connect(&self, folder: &LocalVault, keys: &VaultKeys) -> Result<NetworkServer, VaultClientError> {
        let (seen, member) = (folder.head()?, keys.writer.as_ref().ok_or(VaultClientError::ReadOnly)?);
        self.connect_as(member.identity(), keys.vault, seen.as_ref())
    }

    /// For who goes by a head that it knows, whatever the server tells of a newer one.
    fn connect_unheard(&self, _: &LocalVault, keys: &VaultKeys) -> Result<NetworkServer, VaultClientError> {
        let member = keys.writer.as_ref().ok_or(VaultClientError::ReadOnly)?.identity();
        let runtime = Handle::current();
        Ok(NetworkServer::connect_unheard(runtime, self.node, &self.address, member, keys.vault)?)
    }

    fn connect_as(
        &self,
        identity: &Identity,
        vault: VaultId,
        seen: Option<&VaultHead>,
    ) -> Result<NetworkServer, VaultClientError> {
        Ok(NetworkServer::connect(Handle::current(), self.node, &self.address, identity, (vault, seen))?)
    }

    fn trusted(&self, keys: &VaultKeys) -> TrustedNodes {
        TrustedNodes { vault: keys.vault, owner: keys.owner, server: self.node }
    }
}

impl VaultInit {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let place = VaultPlace::read(&self.server)?;
        context.output.print(WARNING);
        let unlock = unlock(which.key_file.as_deref(), true)?;
        // Servers know machines; that this one's vault is another name is nobody's business but the two's.
        let maker = identity(&context.home)?;
        let made = || -> Result<VaultId, VaultClientError> {
            let keys = VaultKeys::generate()?;
            let vault = keys.vault;
            let wrapped = WrappedKeys::wrap(&keys, &unlock, PassphraseCost::default())?;
            let recovery = unlock.recovery_key(&vault)?.identity().node_id();
            let server = Box::new(place.connect_as(&maker, vault, None)?);
            let folder = LocalVault::open(&vaults(context), &vault)?;
            // The keys come first: a vault without them would be lost.
            folder.set_keys(&wrapped)?;
            folder.set_server(&self.server)?;
            let trusted = place.trusted(&keys);
            VaultClient::create(folder, keys, &wrapped, server, trusted, vec![recovery])?;
            Ok(vault)
        };
        let vault = made().map_err(api_error)?;
        tell(context, "made", &vault, &self.server, 0);
        Ok(ExitCode::SUCCESS)
    }
}

impl VaultJoin {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let Some(id) = &self.id else {
            let why = || {
                usage("give the server and the vault's id, or the invitation that 'tow vault share' tells")
            };
            return join_invited(context, which, &VaultInvitation::read(&self.server).ok_or_else(why)?);
        };
        let place = VaultPlace::read(&self.server)?;
        let vault = vault_id(id).ok_or_else(|| usage(format!("'{id}' is not the id of a vault")))?;
        let unlock = unlock(which.key_file.as_deref(), false)?;
        let joined = || -> Result<u64, VaultClientError> {
            let mut server = place.connect_as(unlock.recovery_key(&vault)?.identity(), vault, None)?;
            let wrapped = towpath_vault::client::fetch_keys(&mut server)?;
            let keys = wrapped.open(&unlock)?;
            if keys.vault != vault {
                return Err(VaultClientError::Unlock(towpath_vault::keys::UnlockError::Wrong));
            }
            server.finish();
            let member = keys.writer.as_ref().ok_or(VaultClientError::ReadOnly)?;
            let server = Box::new(place.connect_as(member.identity(), vault, None)?);
            let folder = LocalVault::open(&vaults(context), &vault)?;
            folder.set_keys(&wrapped)?;
            folder.set_server(&self.server)?;
            let trusted = place.trusted(&keys);
            Ok(VaultClient::open(folder, keys, server, trusted)?.head().named().number)
        };
        let version = joined().map_err(api_error)?;
        tell(context, "joined", &vault, &self.server, version);
        Ok(ExitCode::SUCCESS)
    }
}

/// Joins another person's vault: with a key of this member's own, which the owner shares the vault with.
fn join_invited(
    context: &Context,
    which: &WhichVault,
    invitation: &VaultInvitation,
) -> Result<ExitCode, ApiError> {
    let VaultInvitation { server, vault, owner } = invitation;
    let place = VaultPlace::read(server)?;
    let folder = LocalVault::open(&vaults(context), vault).map_err(api_error)?;
    let kept = folder.keys().map_err(api_error)?;
    let unlock = unlock(which.key_file.as_deref(), kept.is_none())?;
    let keys = member_keys(&folder, kept, &unlock, invitation).map_err(api_error)?;
    if keys.owner != *owner {
        return Err(usage("the invitation names another owner than this machine knows of the vault"));
    }
    let (node, trusted) = (keys.node().map(|node| node.to_string()), place.trusted(&keys));
    let joined = place
        .connect(&folder, &keys)
        .and_then(|server| VaultClient::open(folder, keys, Box::new(server), trusted));
    match joined {
        Ok(client) => tell(context, "joined", vault, server, client.head().named().number),
        Err(VaultClientError::Server(ServerError::Refused(why))) => {
            tell_waiting(context, invitation, node.unwrap_or_default(), &why);
        }
        Err(error) => return Err(api_error(error)),
    }
    Ok(ExitCode::SUCCESS)
}

/// The keys of this member, drawn if there are none yet.
fn member_keys(
    folder: &LocalVault,
    kept: Option<WrappedKeys>,
    unlock: &Unlock,
    invitation: &VaultInvitation,
) -> Result<VaultKeys, VaultClientError> {
    if let Some(kept) = kept {
        return Ok(kept.open(unlock)?);
    }
    let keys = VaultKeys::of_member(invitation.vault, invitation.owner)?;
    folder.set_keys(&WrappedKeys::wrap(&keys, unlock, PassphraseCost::default())?)?;
    folder.set_server(&invitation.server)?;
    Ok(keys)
}

fn tell_waiting(context: &Context, invitation: &VaultInvitation, member: String, why: &str) {
    if context.output.is_json() {
        let (vault, server) = (invitation.vault.to_string(), invitation.server.clone());
        return context.output.object(&ToldWaiting { event: "waiting", vault, server, member });
    }
    context.output.line(&member);
    let ask = "the vault is not shared with you yet. This is your member id; its owner says";
    context.output.print(&format!("tow: {ask}: tow vault share {member} (the server: {why})"));
}

fn tell(context: &Context, event: &'static str, vault: &VaultId, server: &str, version: u64) {
    match context.output.is_json() {
        true => {
            let (vault, server) = (vault.to_string(), server.to_owned());
            context.output.object(&ToldVault { event, vault, server, version });
        }
        false => context.output.line(&vault.to_string()),
    }
}

fn vaults(context: &Context) -> PathBuf {
    context.home.state().join("vaults")
}

impl WhichVault {
    /// The vault, its newest version proved.
    pub fn open(&self, context: &Context) -> Result<VaultClient, ApiError> {
        self.opened(context, VaultPlace::connect, VaultClient::open)
    }

    /// The vault; if its newest version does not count, as this machine saw it last.
    pub fn open_older(&self, context: &Context) -> Result<VaultClient, ApiError> {
        let opened = match self.opened(context, VaultPlace::connect, VaultClient::open) {
            Err(error) if error.kind == ErrorKind::Corrupt => {
                context
                    .output
                    .complain(&format!("tow: {}; going by what this machine saw last", error.message));
                self.opened(context, VaultPlace::connect_unheard, VaultClient::open_remembered)
            }
            opened => opened,
        };
        let mut vault = opened?;
        use_holders(&mut vault, true)?;
        Ok(vault)
    }

    /// Goes on with the version that the server shows, whose hash begins with these digits.
    pub fn accept(&self, context: &Context, digits: &str) -> Result<AcceptedHead, ApiError> {
        self.opened(context, VaultPlace::connect, |folder, keys, server, trusted| {
            accept(folder, keys, server, trusted, digits)
        })
    }

    /// The vault for a put: without its server, if that can't be reached.
    pub fn open_to_put(&self, context: &Context) -> Result<OpenedVault, ApiError> {
        let UnlockedVault { folder, keys, place } = self.unlocked(context, LocalVault::open)?;
        let trusted = place.trusted(&keys);
        let opened = match place.connect(&folder, &keys) {
            Err(VaultClientError::Server(why @ ServerError::Unreachable(_))) => {
                open_unreachable(folder, keys, why.clone(), trusted)
                    .map(|vault| OpenedVault { vault, why: Some(why) })
            }
            connected => connected
                .and_then(|server| VaultClient::open(folder, keys, Box::new(server), trusted))
                .map(|vault| OpenedVault { vault, why: None }),
        };
        opened.map_err(api_error)
    }

    /// The vault for who only looks, which waits for no other process of this machine. Where its server can't be reached and something waits
    /// here to be committed, or others have its blocks, as this machine saw it last.
    pub fn look(&self, context: &Context) -> Result<OpenedVault, ApiError> {
        let UnlockedVault { folder, keys, place } = self.unlocked(context, LocalVault::look)?;
        let trusted = place.trusted(&keys);
        let waits = does_wait(&folder).map_err(api_error)?;
        let is_held = !KnownHolders::of(&folder).map_err(api_error)?.others.is_empty();
        let opened = match place.connect(&folder, &keys) {
            Err(VaultClientError::Server(why @ ServerError::Unreachable(_))) if waits || is_held => {
                context.output.complain(&format!("tow: {why}; going by what this machine saw last"));
                open_unreachable(folder, keys, why.clone(), trusted)
                    .map(|vault| OpenedVault { vault, why: Some(why) })
            }
            connected => connected
                .and_then(|server| open_looking(folder, keys, Box::new(server), trusted))
                .map(|vault| OpenedVault { vault, why: None }),
        };
        let mut opened = opened.map_err(api_error)?;
        let is_server_there = opened.why.is_none();
        use_holders(&mut opened.vault, is_server_there)?;
        Ok(opened)
    }

    /// The same; if its newest version does not count, as this machine saw it last.
    pub fn look_older(&self, context: &Context) -> Result<OpenedVault, ApiError> {
        match self.look(context) {
            Err(error) if error.kind == ErrorKind::Corrupt => {
                self.open_older(context).map(|vault| OpenedVault { vault, why: None })
            }
            looked => looked,
        }
    }

    /// Forgets what waits on this machine to be committed.
    pub fn discard(&self, context: &Context) -> Result<usize, ApiError> {
        discard(&self.folder(context)?).map_err(api_error)
    }

    /// What this machine keeps of the vault.
    pub fn folder(&self, context: &Context) -> Result<LocalVault, ApiError> {
        LocalVault::open(&vaults(context), &self.find(context)?).map_err(api_error)
    }

    /// The same, beside others who use it.
    pub fn folder_to_look(&self, context: &Context) -> Result<LocalVault, ApiError> {
        LocalVault::look(&vaults(context), &self.find(context)?).map_err(api_error)
    }

    /// Goes to a vault's server with the keys of this machine, and does `open` with them.
    fn opened<T>(&self, context: &Context, connect: Connector, open: impl Opener<T>) -> Result<T, ApiError> {
        let UnlockedVault { folder, keys, place } = self.unlocked(context, LocalVault::open)?;
        let trusted = place.trusted(&keys);
        let opened =
            connect(&place, &folder, &keys).and_then(|server| open(folder, keys, Box::new(server), trusted));
        opened.map_err(api_error)
    }

    fn unlocked(&self, context: &Context, open: FolderOpener) -> Result<UnlockedVault, ApiError> {
        let vault = self.find(context)?;
        let folder = open(&vaults(context), &vault).map_err(api_error)?;
        let lacking = || usage(format!("vault {vault} is not known on this machine: 'tow vault join'"));
        let wrapped = folder.keys().map_err(api_error)?.ok_or_else(lacking)?;
        let place = VaultPlace::read(&folder.server().map_err(api_error)?.ok_or_else(lacking)?)?;
        let unlock = unlock(self.key_file.as_deref(), false)?;
        let keys = wrapped.open(&unlock).map_err(|error| api_error(error.into()))?;
        Ok(UnlockedVault { folder, keys, place })
    }

    fn find(&self, context: &Context) -> Result<VaultId, ApiError> {
        let all = LocalVault::list(&vaults(context));
        let prefix = self.vault.as_deref().unwrap_or_default();
        let found: Vec<_> = all.iter().filter(|vault| vault.to_string().starts_with(prefix)).collect();
        match found.as_slice() {
            [one] => Ok(**one),
            [] if all.is_empty() => {
                Err(usage("there is no vault on this machine: 'tow vault init' or 'tow vault join'"))
            }
            [] => Err(usage(format!("no vault of this machine has an id that begins with '{prefix}'"))),
            several => {
                let ids: Vec<_> = several.iter().map(ToString::to_string).collect();
                Err(usage(format!("which vault? --vault {}", ids.join(" or "))))
            }
        }
    }
}

/// A vault, and why its server can't be reached, if so.
pub struct OpenedVault {
    pub vault: VaultClient,
    pub why: Option<ServerError>,
}

/// What this machine has of a vault.
struct UnlockedVault {
    folder: LocalVault,
    keys: VaultKeys,
    place: VaultPlace,
}

type FolderOpener = fn(&Path, &VaultId) -> Result<LocalVault, VaultClientError>;

type Connector = fn(&VaultPlace, &LocalVault, &VaultKeys) -> Result<NetworkServer, VaultClientError>;

/// What is done with a vault's folder, keys and server.
trait Opener<T>:
    FnOnce(LocalVault, VaultKeys, Box<dyn RemoteVault>, TrustedNodes) -> Result<T, VaultClientError>
{
}

impl<T, F> Opener<T> for F where
    F: FnOnce(LocalVault, VaultKeys, Box<dyn RemoteVault>, TrustedNodes) -> Result<T, VaultClientError>
{
}
