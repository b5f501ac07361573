//! A vault's server for who only looks: beside a process that puts, whose caches are read where they lie, and where the server itself can't
//! be reached.

use bytes::Bytes;
use towpath_vault_format::{Certificate, Digest, DropStatement, DroppedRange, SignedRoot, Update};
use towpath_vault_protocol::{CommittedVersion, VaultUsage};

use crate::local::PackReader;
use crate::server::{RemoteVault, ServerError};

/// Such a server.
pub struct LookingServer {
    packs: PackReader,
    server: Result<Box<dyn RemoteVault>, ServerError>,
}

impl LookingServer {
    /// What is in `packs` comes from there; all else from `server`, if it can be reached.
    pub fn new(packs: PackReader, server: Result<Box<dyn RemoteVault>, ServerError>) -> Self {
        Self { packs, server }
    }

    fn server(&mut self) -> Result<&mut Box<dyn RemoteVault>, ServerError> {
        self.server.as_mut().map_err(|error| error.clone())
    }

    /// Why nothing is written by this way.
    fn written(&self) -> ServerError {
        let busy = || ServerError::Unreachable("another process of this machine uses the vault".into());
        self.server.as_ref().err().cloned().unwrap_or_else(busy)
    }
}

impl RemoteVault for LookingServer {
    fn head(&mut self) -> Result<Option<CommittedVersion>, ServerError> {
        self.server()?.head()
    }

    fn kept(&mut self, before: u64, most: u64) -> Result<Vec<u64>, ServerError> {
        self.server()?.kept(before, most)
    }

    fn versions(&mut self, numbers: &[u64]) -> Result<Vec<Option<CommittedVersion>>, ServerError> {
        self.server()?.versions(numbers)
    }

    fn update(&mut self, number: u64) -> Result<Option<Bytes>, ServerError> {
        self.server()?.update(number)
    }

    fn objects(&mut self, names: &[Digest]) -> Result<Vec<Option<Vec<u8>>>, ServerError> {
        let mut objects: Vec<_> = names.iter().map(|name| self.packs.get(name)).collect();
        let missing: Vec<_> = (0..names.len()).filter(|at| objects[*at].is_none()).collect();
        if missing.is_empty() {
            return Ok(objects);
        }
        let asked: Vec<Digest> = missing.iter().map(|at| names[*at]).collect();
        for (at, object) in missing.into_iter().zip(self.server()?.objects(&asked)?) {
            objects[at] = object;
        }
        Ok(objects)
    }

    fn usage(&mut self, dropped: &[DroppedRange]) -> Result<VaultUsage, ServerError> {
        self.server()?.usage(dropped)
    }

    fn statements(&mut self, first: u64) -> Result<Vec<DropStatement>, ServerError> {
        self.server()?.statements(first)
    }

    fn drop_versions(&mut self, _: &DropStatement) -> Result<(), ServerError> {
        Err(self.written())
    }

    fn paths(&mut self, _: &Update) -> Result<Option<Vec<Vec<u8>>>, ServerError> {
        Err(self.written())
    }

    fn commit(
        &mut self,
        _: &Update,
        _: &SignedRoot,
        _: &mut (dyn FnMut(&Digest) -> Option<Vec<u8>> + Send),
    ) -> Result<Option<Certificate>, ServerError> {
        Err(self.written())
    }

    fn begin_commit(
        &mut self,
        _: &Update,
        _: &SignedRoot,
        _: &mut (dyn FnMut(&Digest) -> Option<Vec<u8>> + Send),
    ) -> Result<(), ServerError> {
        Err(self.written())
    }

    fn next_commit(&mut self) -> Result<Option<Certificate>, ServerError> {
        Err(self.written())
    }
}
