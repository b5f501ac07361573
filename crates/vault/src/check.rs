//! Checking: everything of a version is read from the server and proved, from the signed root down to each file's hash.

use std::collections::HashSet;

use towpath_content::Oid;
use towpath_content::tree::Kind;
use towpath_vault_format::{FileId, VaultRoot};

use crate::catalogue::{Catalogue, CatalogueEntry, EntryDescription, MAX_CATALOGUE};
use crate::client::VaultClient;
use crate::descriptor::{DescribedEntries, DescribedEntry, EntryDescriptor, MAX_DESCRIPTOR};
use crate::error::VaultClientError;
use crate::history::kept;
use crate::reader::FileReader;

/// What a check found.
#[derive(Debug, Default)]
pub struct CheckOutcome {
    /// Versions that were read.
    pub versions: u64,
    /// Entries that were read, those of each version.
    pub entries: u64,
    /// Files in them.
    pub files: u64,
    /// Plaintext that was read.
    pub bytes: u64,
    /// What is wrong.
    pub faults: Vec<CheckFault>,
}

/// Something that is wrong.
#[derive(Debug)]
pub struct CheckFault {
    /// The version.
    pub number: u64,
    /// The entry; none: the catalogue.
    pub entry: Option<Vec<u8>>,
    /// What it is.
    pub error: VaultClientError,
}

/// Bytes that are hashed at once: the processor is several times as fast with them as with runs.
const HASHED: usize = 128 << 10;

/// Compares a content with the hashes of its files, as it comes.
struct HashCheck<'d> {
    waiting: DescribedEntries<'d>,
    /// A file, and its bytes that did not come yet.
    open: Option<(DescribedEntry, u64)>,
    hasher: blake3::Hasher,
    /// Bytes that are not hashed yet.
    held: Vec<u8>,
    files: u64,
}

impl VaultClient {
    /// Checks a version, or with `all` every one that was not dropped. Faults of one entry do not keep others from being read.
    pub fn check(
        &mut self,
        number: Option<u64>,
        all: bool,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<CheckOutcome, VaultClientError> {
        let newest = self.root(number)?;
        let mut outcome = CheckOutcome::default();
        if !all {
            self.check_version(&newest, &mut outcome, progress);
            return Ok(outcome);
        }
        let kept: HashSet<u64> =
            kept(self.server.as_mut(), &self.head, newest.number + 1, u64::MAX)?.into_iter().collect();
        let first = kept.iter().min().copied().unwrap_or(newest.number);
        for version in self.versions(first)? {
            let root = version.signed.root;
            if root.number == newest.number || kept.contains(&root.number) {
                self.check_version(&root, &mut outcome, progress);
            }
        }
        Ok(outcome)
    }

    fn check_version(
        &mut self,
        root: &VaultRoot,
        outcome: &mut CheckOutcome,
        progress: &mut (dyn FnMut(u64) + Send),
    ) {
        outcome.versions += 1;
        let catalogue = match self.catalogue_from_server(root) {
            Ok(catalogue) => catalogue,
            Err(error) => {
                return outcome.faults.push(CheckFault { number: root.number, entry: None, error });
            }
        };
        for (name, entry) in &catalogue.entries {
            outcome.entries += 1;
            if let Err(error) = self.check_entry(root, entry, outcome, progress) {
                outcome.faults.push(CheckFault { number: root.number, entry: Some(name.clone()), error });
            }
        }
    }

    /// Reads files of the server alone.
    fn server_reader(&mut self) -> FileReader<'_> {
        FileReader { use_cache: false, ..self.reader() }
    }

    fn catalogue_from_server(&mut self, root: &VaultRoot) -> Result<Catalogue, VaultClientError> {
        let Some(file) = root.file(&FileId::CATALOGUE) else { return Ok(Catalogue::default()) };
        let bytes = self.server_reader().read_all(file, MAX_CATALOGUE, "bytes of the catalogue")?;
        Catalogue::from_bytes(&bytes).map_err(VaultClientError::record("the catalogue"))
    }

    fn check_entry(
        &mut self,
        root: &VaultRoot,
        entry: &CatalogueEntry,
        outcome: &mut CheckOutcome,
        progress: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(), VaultClientError> {
        let lacking = || VaultClientError::record_of("the catalogue", "it names a file that is not there");
        let description = match &entry.description {
            EntryDescription::Inline(bytes) => bytes.clone(),
            EntryDescription::File(file) => {
                let file = root.file(file).ok_or_else(lacking)?;
                self.server_reader().read_all(file, MAX_DESCRIPTOR, "bytes of names and metadata")?
            }
        };
        let description = EntryDescriptor::new(description, entry.length)?;
        let mut check = HashCheck::new(&description)?;
        let content = *root.file(&entry.content).ok_or_else(lacking)?;
        if content.length != entry.length {
            return Err(lacking());
        }
        self.server_reader().read(&content, 0..content.length, &mut |bytes| {
            outcome.bytes += bytes.len() as u64;
            progress(bytes.len() as u64);
            check.add(bytes)
        })?;
        outcome.files += check.files;
        Ok(())
    }
}

impl<'d> HashCheck<'d> {
    fn new(described: &'d EntryDescriptor) -> Result<Self, VaultClientError> {
        let (waiting, held) = (described.entries(), Vec::with_capacity(HASHED));
        let mut check = Self { waiting, open: None, hasher: blake3::Hasher::new(), held, files: 0 };
        check.next_file()?;
        Ok(check)
    }

    fn add(&mut self, mut bytes: &[u8]) -> Result<(), VaultClientError> {
        while !bytes.is_empty() {
            let Some((_, left)) = &mut self.open else { break };
            let most = usize::try_from(*left).unwrap_or(usize::MAX).min(HASHED - self.held.len());
            let (part, rest) = bytes.split_at(bytes.len().min(most));
            self.held.extend_from_slice(part);
            *left -= part.len() as u64;
            if self.held.len() == HASHED || *left == 0 {
                self.hasher.update(&self.held);
                self.held.clear();
            }
            bytes = rest;
            self.next_file()?;
        }
        Ok(())
    }

    /// Ends files that are whole, and begins the next one that has bytes.
    fn next_file(&mut self) -> Result<(), VaultClientError> {
        loop {
            if let Some((described, _)) = self.open.take_if(|(_, left)| *left == 0) {
                self.files += 1;
                let found = *self.hasher.finalize().as_bytes();
                self.hasher.reset();
                if described.entry.oid() != Some(Oid::Blake3(found)) {
                    return Err(VaultClientError::OtherContent { path: described.path.as_bytes().to_vec() });
                }
            }
            if self.open.is_some() {
                return Ok(());
            }
            let Some(described) = self.waiting.next() else { return Ok(()) };
            if let (Kind::File { size, .. }, Some(_)) = (&described.entry.kind, described.start) {
                let size = *size;
                self.open = Some((described, size));
            }
        }
    }
}
