//! Nodes and blocks from holders, or else from the server alone.

use bytes::Bytes;
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

/// Holders, and whether the server is asked for what none of them gives.
pub struct ObjectHolders {
    pub(crate) pool: HolderPool,
    pub(crate) asks_server: bool,
}

/// Objects by their hashes, each with the bytes that it names: from holders, if there are any, else from the server. `what` they are is for
/// errors.
pub(crate) fn held_objects(
    holders: Option<&mut ObjectHolders>,
    server: &mut dyn RemoteVault,
    what: &'static str,
    wanted: &[WantedObject],
) -> Result<Vec<(Digest, Vec<u8>)>, ServerError> {
    let names: Vec<Digest> = wanted.iter().map(|object| object.name).collect();
    let Some(ObjectHolders { pool, asks_server }) = holders else {
        return checked_objects(server, what, &names);
    };
    let drawn = pool.draw(wanted);
    // The pool has a connection of its own to the server, which may fail where this one does not.
    let server = asks_server.then_some(|lacking: &[Digest]| checked_objects(server, what, lacking));
    filled(what, &names, drawn, server)
}

/// What was drawn of these, and what nobody gave from the `server`, if it is to be asked.
fn filled(
    what: &'static str,
    names: &[Digest],
    drawn: Result<Vec<Option<Bytes>>, DrawError>,
    server: Option<impl FnOnce(&[Digest]) -> Result<Vec<(Digest, Vec<u8>)>, ServerError>>,
) -> Result<Vec<(Digest, Vec<u8>)>, ServerError> {
    let drawn = match (drawn, &server) {
        (Ok(drawn), _) => drawn,
        (Err(error), None) => return Err(fault(error)),
        (Err(_), Some(_)) => vec![None; names.len()],
    };
    let pairs = || names.iter().zip(&drawn);
    let lacking: Vec<Digest> = pairs().filter(|(_, bytes)| bytes.is_none()).map(|(name, _)| *name).collect();
    let rest = match (lacking.first(), server) {
        (None, _) => Vec::new(),
        (Some(_), Some(server)) => server(&lacking)?,
        (Some(name), None) => return Err(ServerError::Lacks { what, name: *name }),
    };
    let mut rest = rest.into_iter();
    let object = |(name, bytes): (&Digest, &Option<Bytes>)| match bytes {
        Some(bytes) => Some((*name, bytes.to_vec())),
        None => rest.next(),
    };
    Ok(pairs().filter_map(object).collect())
}

fn fault(error: DrawError) -> ServerError {
    match &error {
        DrawError::NoHolder { fault: HolderFault::OtherBytes(_) | HolderFault::Nonsense(_), .. } => {
            ServerError::Nonsense(error.to_string())
        }
        _ => ServerError::Unreachable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_asked_for_what_no_holder_gives() {
        type Ask = fn(&[Digest]) -> Result<Vec<(Digest, Vec<u8>)>, ServerError>;
        let gives: Ask = |lacking| Ok(lacking.iter().map(|name| (*name, vec![2])).collect());
        let lacks: Ask = |lacking| Err(ServerError::Lacks { what: "block", name: lacking[0] });
        let names = [Digest([1; 32]), Digest([2; 32]), Digest([3; 32])];
        let drawn = |places: [bool; 3]| {
            Ok(places.map(|is_there| is_there.then(|| Bytes::from_static(&[1]))).to_vec())
        };
        let gone = || Err(DrawError::None);
        for (what, drawn, server, expected) in [
            ("all came", drawn([true; 3]), Some(lacks), Some([1, 1, 1])),
            ("one is lacking", drawn([true, false, true]), Some(gives), Some([1, 2, 1])),
            ("that the server lacks, too", drawn([true, false, true]), Some(lacks), None),
            ("the server is not to be asked", drawn([true, false, true]), None, None),
            ("no holder is left", gone(), Some(gives), Some([2, 2, 2])),
            ("nor the server", gone(), None, None),
        ] {
            let found = filled("block", &names, drawn, server).ok();
            let expected =
                expected.map(|bytes| names.into_iter().zip(bytes.map(|byte| vec![byte])).collect());
            assert_eq!(found, expected, "{what}");
        }
    }
}
