//! Changes of metadata on the way: `--chmod` and `--chown`.

use towpath_api::copy::CopyOptions;
use towpath_content::tree::{Kind, Metadata, Owner};
use towpath_files::chmod::Chmod;

use crate::error::{CopyError, RequestFault};

/// Changes of metadata on the way.
pub(super) struct Rewrite {
    chmod: Vec<Chmod>,
    user: Option<Owner>,
    group: Option<Owner>,
}

impl Rewrite {
    /// `umask` holds for changes of modes that name nobody.
    pub(super) fn new(options: &CopyOptions, umask: u32) -> Result<Self, CopyError> {
        let chmod: Result<Vec<_>, _> = options.chmod.iter().map(|text| Chmod::parse(text, umask)).collect();
        let chmod = chmod.map_err(|error| RequestFault::Chmod(error.to_string()))?;
        let (mut user, mut group) = (None, None);
        if let Some(text) = &options.chown {
            let (users, groups) = text.split_once(':').unwrap_or((text, ""));
            user = towpath_files::metadata::user(users).map_err(RequestFault::Chown)?;
            group = towpath_files::metadata::group(groups).map_err(RequestFault::Chown)?;
        }
        Ok(Self { chmod, user, group })
    }

    pub(super) fn apply(&self, metadata: &mut Metadata, kind: &Kind) {
        let is_dir = *kind == Kind::Directory;
        // A symbolic link has no mode of its own.
        for chmod in self.chmod.iter().filter(|_| !matches!(kind, Kind::Symlink { .. })) {
            metadata.mode = chmod.apply(metadata.mode, is_dir);
        }
        if let Some(user) = &self.user {
            metadata.user.clone_from(user);
        }
        if let Some(group) = &self.group {
            metadata.group.clone_from(group);
        }
    }
}
