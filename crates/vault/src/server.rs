//! The seam to a vault's server: what a client asks of it. Nothing that comes is believed before it is proved.
//!
//! Calls block. Each may be tried again; a commit of which no answer came may have been done, which the next head shows.

use bytes::Bytes;
use thiserror::Error;
use towpath_vault_format::{Certificate, Digest, DropStatement, DroppedRange, SignedRoot, Update};
use towpath_vault_protocol::{CommittedVersion, MeasuredLine, VaultUsage};

/// Reason why a server did not answer as it should.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ServerError {
    /// It can't be reached, or the connection broke.
    #[error("the vault's server: {0}")]
    Unreachable(String),
    /// It refuses.
    #[error("the vault's server refuses: {0}")]
    Refused(String),
    /// It does not have what it should.
    #[error("the vault's server lacks {what} {}", .name.short())]
    Lacks {
        /// A node or a block.
        what: &'static str,
        /// Its hash.
        name: Digest,
    },
    /// It gave other bytes than those that were asked for.
    #[error("the vault's server gave other bytes for {what} {}", .name.short())]
    OtherBytes {
        /// A node or a block.
        what: &'static str,
        /// Its hash.
        name: Digest,
    },
    /// What it says makes no sense.
    #[error("the vault's server: {0}")]
    Nonsense(String),
}

/// A vault on a server.
pub trait RemoteVault {
    /// The newest version; `None`: there is no such vault yet.
    fn head(&mut self) -> Result<Option<CommittedVersion>, ServerError>;

    /// Numbers of the versions before number `before` that were not dropped, the newest first: `most`, or as many as it tells at once.
    fn kept(&mut self, before: u64, most: u64) -> Result<Vec<u64>, ServerError>;

    /// The versions of these numbers, dropped ones too; `None` for each that it does not have.
    fn versions(&mut self, numbers: &[u64]) -> Result<Vec<Option<CommittedVersion>>, ServerError>;

    /// The update that made the version of this number, packed ([`towpath_vault_protocol::whole`]); `None` if it is not told. It is not
    /// checked.
    fn update(&mut self, number: u64) -> Result<Option<Bytes>, ServerError>;

    /// Nodes, blocks and records by their hashes; `None` for each that it lacks. Their bytes are not checked.
    fn objects(&mut self, names: &[Digest]) -> Result<Vec<Option<Vec<u8>>>, ServerError>;

    /// True if [`Self::objects`] gives none with other bytes than its hash says, so that nobody has to hash them again. Default: false.
    fn checks_objects(&self) -> bool {
        false
    }

    /// What the vault takes there, and would not if these versions were dropped, too. After a statement it is told once garbage was
    /// collected.
    fn usage(&mut self, dropped: &[DroppedRange]) -> Result<VaultUsage, ServerError>;

    /// Words by which versions were dropped, from number `first` on, some of them; none at the end. Whether their deleter is the
    /// vault's is not checked.
    fn statements(&mut self, first: u64) -> Result<Vec<DropStatement>, ServerError>;

    /// Says which versions may go.
    fn drop_versions(&mut self, statement: &DropStatement) -> Result<(), ServerError>;

    /// Sends blocks of a version that is being made. The server need not keep them: when the version is offered it asks for what it lacks.
    fn send_early(&mut self, blocks: Vec<Vec<u8>>) -> Result<(), ServerError> {
        drop(blocks);
        Ok(())
    }

    /// What the line carries, as far as this was measured.
    fn line(&self) -> MeasuredLine {
        MeasuredLine::default()
    }

    /// The nodes along the paths that an update changes, for who has not the tree it is based on; what is committed next, or
    /// [`Self::withdraw`], follows at once. They are not checked. `None`: another version was first.
    fn paths(&mut self, update: &Update) -> Result<Option<Vec<Vec<u8>>>, ServerError>;

    /// The update whose paths were told is not offered, and nothing more is asked.
    fn withdraw(&mut self) {}

    /// Offers a new version. `block` gives the bytes of the new blocks that the server asks for. The certificate says that it
    /// is committed and durable; `None`: another version was first.
    fn commit(
        &mut self,
        update: &Update,
        signed: &SignedRoot,
        block: &mut (dyn FnMut(&Digest) -> Option<Vec<u8>> + Send),
    ) -> Result<Option<Certificate>, ServerError>;

    /// Offers a new version with its blocks, and does not wait for the answer, which [`Self::next_commit`] gives. The next one may be
    /// based on it.
    fn begin_commit(
        &mut self,
        update: &Update,
        signed: &SignedRoot,
        block: &mut (dyn FnMut(&Digest) -> Option<Vec<u8>> + Send),
    ) -> Result<(), ServerError>;

    /// The answer to the first of those that has none yet, as [`Self::commit`] gives it.
    fn next_commit(&mut self) -> Result<Option<Certificate>, ServerError>;
}

/// Objects by their hashes, each compared with its own. `what` they are is for errors.
pub fn checked_objects(
    server: &mut dyn RemoteVault,
    what: &'static str,
    names: &[Digest],
) -> Result<Vec<(Digest, Vec<u8>)>, ServerError> {
    let came = server.objects(names)?;
    if came.len() != names.len() {
        return Err(ServerError::Nonsense(format!("{} answers to {} questions", came.len(), names.len())));
    }
    let is_checked = server.checks_objects();
    let checked = names.iter().zip(came).map(|(name, bytes)| match bytes {
        None => Err(ServerError::Lacks { what, name: *name }),
        Some(bytes) if !is_checked && Digest::of(&bytes) != *name => {
            Err(ServerError::OtherBytes { what, name: *name })
        }
        Some(bytes) => Ok((*name, bytes)),
    });
    checked.collect()
}
