//! A file that is made of others which are here, whole or in part: of one that has the same content, or by deltas of an
//! older version.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use towpath_content::Oid;
use towpath_content::pieces::{MAX_LIVE_SIZE, Value};
use towpath_files::{FileError, Staged};
use towpath_store::{PieceHasher, hash_open_file};

use super::delta_base::FileBase;
use super::renamed::OldNames;
use super::{CopyFile, Wanted};
use towpath_reuse::candidates::index::Sought;
use towpath_reuse::candidates::rules::FileCandidate;

impl CopyFile {
    /// What another file of the destination may be like that has the same bytes; none for what replaces a file.
    pub fn sought(&self) -> Option<Sought<'_>> {
        let Wanted { path, size, metadata, .. } = &self.wanted;
        self.wanted.changes.new.then_some(Sought { path, size: *size, modified: metadata.modified })
    }

    /// Another file may have its bytes, or most of them.
    pub fn set_found(&self, found: FileCandidate) {
        let _ = self.found.set(found);
    }

    /// That other file.
    pub fn found(&self) -> Option<&FileCandidate> {
        self.found.get()
    }

    /// Whether its content has to be named before anything of it comes.
    pub fn is_named_first(&self) -> bool {
        match self.found() {
            Some(found) => found.is_same(),
            None => self.wanted.compare.is_some() || self.old_names().may_be(),
        }
    }

    /// What of this machine it is made of.
    pub const fn base(&self) -> FileBase<'_> {
        FileBase { file: self }
    }

    /// Its bytes, where they come one part after the other.
    pub const fn parts(&self) -> FileParts<'_> {
        FileParts { file: self }
    }

    /// Its old names, if it was renamed at the source.
    pub const fn old_names(&self) -> OldNames<'_> {
        OldNames { file: self }
    }
}

/// The bytes of a file that come one part after the other.
pub struct FileParts<'a> {
    file: &'a CopyFile,
}

impl FileParts<'_> {
    /// They begin to come. Returns how many bytes are here from before: these are written once more, where they are, so that they
    /// stay, should this be interrupted as well.
    pub fn begin(&self) -> Result<u64, FileError> {
        self.file.base().begin(self.file.size())?;
        let mut state = self.file.state();
        // Pieces of larger files are larger than those of a live object.
        state.parts = (state.size <= MAX_LIVE_SIZE).then(HashedParts::default);
        Ok(state.came.len())
    }

    /// All of them are the first `len` of a file that is here. False: that is not what they are called.
    pub(super) fn take_all(&self, from: &File, len: u64, oid: &Oid) -> Result<bool, FileError> {
        let staged = self.file.fresh(self.file.size())?;
        let (body, is_sparse) = (staged.body().clone(), self.file.state().is_sparse);
        self.file.state().staged = Some(staged);
        body.copy_from(from, len, is_sparse)?;
        self.finish(oid)
    }

    /// The next part. Returns how many bytes of it were not here before.
    pub fn take(&self, offset: u64, bytes: &[u8]) -> Result<u64, FileError> {
        let mut state = self.file.state();
        // From here on it has to be read once more.
        state.parts.take_if(|parts| !parts.add(offset, bytes));
        let range = offset..offset + bytes.len() as u64;
        let new = state.came.gaps(&range).iter().map(|gap| gap.end - gap.start).sum();
        // What was left there has to be written over, also with zeros.
        let sparse = state.is_sparse && new == bytes.len() as u64;
        let Some(staged) = &state.staged else { return Ok(0) };
        staged.body().write_piece(offset, bytes, sparse)?;
        state.came.insert(range);
        Ok(new)
    }

    /// All came: true if they are what the file is called, which then takes its name. Else nothing of them is kept.
    pub fn finish(&self, oid: &Oid) -> Result<bool, FileError> {
        match self.hashed().filter(|(hashed, _)| hashed == oid) {
            Some(hashed) => self.file.finish_staged(hashed).map(|()| true),
            None => {
                self.drop_all();
                Ok(false)
            }
        }
    }

    /// Nothing came of them.
    pub fn drop_all(&self) {
        let staged = self.file.state().staged.take();
        if let Some(Err(error)) = staged.map(Staged::discard) {
            tracing::debug!(%error, "parts stay where they are");
        }
    }

    /// The name of all that was written, and the values of its pieces. Reads what did not come from the front on.
    fn hashed(&self) -> Option<(Oid, Vec<Value>)> {
        let mut state = self.file.state();
        let size = state.size;
        if let Some(HashedParts { hasher, values }) =
            state.parts.take().filter(|parts| parts.hasher.size() == size)
        {
            return Some(hasher.finish(values));
        }
        let path = Path::new(OsStr::from_bytes(&self.file.wanted.shown));
        let hashed = hash_open_file(state.staged.as_ref()?.body().file(), path).ok()?;
        Some((hashed.oid, hashed.values.unwrap_or_else(|| vec![*hashed.oid.digest()])))
    }
}

/// Hash of the parts of a file that came so far, from its front on.
#[derive(Default)]
pub(super) struct HashedParts {
    hasher: PieceHasher,
    values: Vec<Value>,
}

impl HashedParts {
    /// Takes the next part; false if it is not the next one.
    fn add(&mut self, offset: u64, bytes: &[u8]) -> bool {
        let is_next = offset == self.hasher.size();
        if is_next {
            self.values.extend(self.hasher.update(bytes));
        }
        is_next
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use towpath_content::tree::Time;

    use towpath_files::{RelPath, Stamp};

    use super::super::tests::file_of;
    use super::*;
    use towpath_reuse::candidates::index::Present;
    use towpath_reuse::candidates::rules::Resemblance;

    const PIECE: usize = 1 << towpath_content::pieces::MIN_LOG2;

    /// Whether parts of a content that come in this order make the file, and whether their hash is known without reading it.
    fn made(content: &[u8], order: &[usize], oid: &Oid) -> (bool, bool) {
        let home = tempfile::tempdir().unwrap();
        let file = file_of(home.path(), 1, content.len() as u64);
        file.parts().begin().unwrap();
        let len = content.len().div_ceil(order.len().max(1)).max(1);
        for part in order {
            let at = part * len;
            file.parts().take(at as u64, &content[at..content.len().min(at + len)]).unwrap();
        }
        let size = file.size();
        let is_hashed = file.state().parts.as_ref().is_some_and(|parts| parts.hasher.size() == size);
        let is_made = file.parts().finish(oid).unwrap();
        file.receiving.named(file.receiving.placing().unwrap().flush());
        let written = std::fs::read(home.path().join("to/file")).ok();
        assert_eq!(written.as_deref(), is_made.then_some(content));
        (is_made, is_hashed)
    }

    /// The file as a copy takes it up that finds an older version of it beside its place.
    fn taken_up(home: &Path, size: usize) -> Arc<CopyFile> {
        let file = file_of(home, 1, size as u64);
        let (path, old) = (RelPath::root().join(b"old").unwrap(), home.join("to/old"));
        let stamp = Stamp::of(&File::open(&old).unwrap()).unwrap();
        file.set_found(FileCandidate { file: Present { path, stamp }, resemblance: Resemblance::Numbered });
        file
    }

    #[test]
    fn what_came_in_parts_is_the_front_of_the_next_copys_base_and_is_hashed_again() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("to")).unwrap();
        let (size, part) = (16 << 20, 8 << 20);
        std::fs::write(home.path().join("to/old"), vec![1; size]).unwrap();
        // Not even zeros may be left out where something lies.
        let new = [vec![2; part], vec![0; part]].concat();
        for came in [part / 2, part] {
            let first = taken_up(home.path(), size);
            assert_eq!(first.base().open().unwrap().read(0..3).as_deref(), Some(&[1; 3][..]));
            first.parts().begin().unwrap();
            first.learn(size as u64, Time { seconds: 1, nanos: 0 }, true);
            // A disk that was cut off kept something else.
            first.parts().take(0, &vec![7; came]).unwrap();
            drop(first);

            let next = taken_up(home.path(), size);
            next.learn(size as u64, Time { seconds: 1, nanos: 0 }, true);
            let base = next.base().open().filter(|_| next.base().oid().is_none()).unwrap();
            assert_eq!((base.size(), next.base().size()), (size as u64, Some(size as u64)));
            let middle = base.read(came as u64 - 1..came as u64 + 1);
            assert_eq!(middle.as_deref(), Some(&[7, 1][..]));
            next.parts().begin().unwrap();
            next.parts().take(0, &new[..part]).unwrap();
            next.parts().take(part as u64, &new[part..]).unwrap();
            assert!(next.parts().finish(&Oid::of(&new)).unwrap());
            next.receiving.named(next.receiving.placing().unwrap().flush());
            assert!(std::fs::read(home.path().join("to/file")).unwrap() == new);
            std::fs::remove_file(home.path().join("to/file")).unwrap();
        }
    }

    #[test]
    fn parts_are_hashed_as_they_come_and_read_again_only_out_of_order() {
        for len in [1, PIECE, PIECE + 1, 3 * PIECE + 77] {
            let content: Vec<u8> = (0..len).map(|at| (at / 251 + at) as u8).collect();
            let oid = Oid::of(&content);
            assert_eq!(made(&content, &[0], &oid), (true, true), "{len} bytes at once");
            assert_eq!(made(&content, &[0], &Oid::of(b"other")), (false, true), "{len} other bytes");
            if len > 1 {
                assert_eq!(made(&content, &[0, 1], &oid), (true, true), "{len} bytes in two parts");
                assert_eq!(made(&content, &[1, 0], &oid), (true, false), "{len} bytes, the last ones first");
            }
        }
    }
}
