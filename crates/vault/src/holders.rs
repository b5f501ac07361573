//! Nodes and blocks from holders, or else from the server alone.

use towpath_vault_format::Digest;
use towpath_vault_holders::{DrawError, HolderFault};

use crate::server::{RemoteVault, ServerError, checked_objects};

pub(crate) use towpath_vault_holders::{HolderPool, WantedObject};

/// Bytes of a node, about.
const NODE: u32 = 2048;

/// A node that is wanted.
pub(crate) const fn wanted_node(name: Digest) -> WantedObject {
    WantedObject { name, length: NODE }
}

/// Objects by their hashes, each with the bytes that it names: from holders, if there are any, else from the server. `what` they are is for
/// errors.
pub(crate) fn held_objects(
    holders: Option<&mut HolderPool>,
    server: &mut dyn RemoteVault,
    what: &'static str,
    wanted: &[WantedObject],
) -> Result<Vec<(Digest, Vec<u8>)>, ServerError> {
    let Some(holders) = holders else {
        let names: Vec<Digest> = wanted.iter().map(|object| object.name).collect();
        return checked_objects(server, what, &names);
    };
    let drawn = holders.draw(wanted).map_err(fault)?;
    let pairs = wanted.iter().zip(drawn).map(|(object, bytes)| match bytes {
        Some(bytes) => Ok((object.name, Vec::from(bytes))),
        None => Err(ServerError::Lacks { what, name: object.name }),
    });
    pairs.collect()
}

fn fault(error: DrawError) -> ServerError {
    match &error {
        DrawError::NoHolder { fault: HolderFault::OtherBytes(_) | HolderFault::Nonsense(_), .. } => {
            ServerError::Nonsense(error.to_string())
        }
        _ => ServerError::Unreachable(error.to_string()),
    }
}
