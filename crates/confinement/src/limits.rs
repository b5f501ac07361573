//! The kernel's limits on what a thread may write and start: Landlock, as far as this kernel has it.
//!
//! They hold for the calling thread and for all that it starts from then on, threads and programs.
//! Files that are open already keep their rights.

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, make_bitflags, path_beneath_rules,
};

use super::{ConfinementError, Enforced, Writable};

/// Accesses that are limited. Reading is not: a receiver searches the disk for what is to come.
fn limited() -> BitFlags<AccessFs> {
    // Later kernels' additions to it are about sockets.
    AccessFs::from_write(ABI::V5) | AccessFs::Execute
}

/// Access that temporaries need that never get a name that lasts.
const NAMELESS: BitFlags<AccessFs> = make_bitflags!(AccessFs::{WriteFile | Truncate | MakeReg | RemoveFile});

/// The limits of one kind of work, ready to be put on threads.
pub struct Limits(RulesetCreated);

impl Limits {
    /// The limits that let through what is `writable` and no more. They hold for nothing yet.
    pub fn new(writable: &Writable) -> Result<Self, ConfinementError> {
        Self::made(writable).map(Self).map_err(|source| ConfinementError::Limits { source })
    }

    fn made(writable: &Writable) -> Result<RulesetCreated, RulesetError> {
        let all = AccessFs::from_write(ABI::V5);
        Ruleset::default()
            // The first kernels with Landlock refuse every rename from one directory to another, which
            // is how files get their names: there nothing is limited.
            .set_compatibility(CompatLevel::SoftRequirement)
            .handle_access(AccessFs::Refer)?
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(limited())?
            .create()?
            .add_rules(path_beneath_rules(writable.wholly(), all))?
            .add_rules(path_beneath_rules(writable.temporary(), NAMELESS))?
            .add_rules(path_beneath_rules(writable.removable(), AccessFs::RemoveFile))
    }

    /// Puts them on the calling thread, for good.
    pub fn confine_thread(&self) -> Result<Enforced, ConfinementError> {
        let copied = |source| ConfinementError::Io { what: "copying the limits on writing", source };
        let ruleset = self.0.try_clone().map_err(copied)?;
        let status = ruleset.restrict_self().map_err(|source| ConfinementError::Limits { source })?;
        Ok(match status.ruleset {
            RulesetStatus::FullyEnforced => Enforced::Fully,
            RulesetStatus::PartiallyEnforced => Enforced::Partly,
            RulesetStatus::NotEnforced => Enforced::Not,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::path::Path;

    use super::*;
    use crate::Places;

    /// Findings of a confined thread; `None` on a kernel that enforces nothing, which is said.
    fn confined<T: Send>(writable: &Writable, work: impl FnOnce() -> T + Send) -> Option<T> {
        let limits = Limits::new(writable).unwrap();
        std::thread::scope(|scope| {
            let working = scope.spawn(move || match limits.confine_thread().unwrap() {
                Enforced::Not => None,
                _ => Some(work()),
            });
            working.join().unwrap()
        })
    }

    fn is_refused<T>(result: std::io::Result<T>) -> bool {
        // A rename or a link across the border looks like one across file systems.
        result.is_err_and(|error| {
            matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::CrossesDevices)
        })
    }

    fn writes_outside(outside: &Path, inside: &Path) -> Vec<(&'static str, bool)> {
        let (old, new) = (outside.join("old"), outside.join("new"));
        vec![
            ("open", is_refused(fs::OpenOptions::new().write(true).open(&old))),
            ("create", is_refused(fs::write(&new, b""))),
            ("mkdir", is_refused(fs::create_dir(&new))),
            ("symlink", is_refused(std::os::unix::fs::symlink("x", &new))),
            ("remove", is_refused(fs::remove_file(&old))),
            ("rename out", is_refused(fs::rename(inside.join("file"), &new))),
            ("rename in", is_refused(fs::rename(&old, inside.join("taken")))),
            ("link", is_refused(fs::hard_link(inside.join("file"), &new))),
            ("run", is_refused(std::process::Command::new("/bin/true").status())),
        ]
    }

    #[test]
    fn the_kernel_refuses_every_kind_of_write_outside() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["inside", "outside"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("inside/file"), b"i").unwrap();
        fs::write(at("outside/old"), b"o").unwrap();
        let writable = Writable::default().with_folder(at("inside"));
        let (inside, outside) = (at("inside"), at("outside"));
        let found = confined(&writable, || {
            let refused = writes_outside(&outside, &inside);
            // Inside all goes on as before, and everything can be read.
            fs::create_dir(inside.join("dir")).unwrap();
            fs::rename(inside.join("file"), inside.join("dir/file")).unwrap();
            fs::write(inside.join("more"), fs::read(outside.join("old")).unwrap()).unwrap();
            refused
        });
        match found {
            Some(refused) => refused.iter().for_each(|(what, is_refused)| assert!(is_refused, "{what}")),
            None => eprintln!("skipped: this kernel has no Landlock"),
        }
    }

    #[test]
    fn temporaries_have_no_lasting_names_and_a_sources_folder_only_loses_files() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["temporary", "source"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("source/sent"), b"").unwrap();
        let places = Places { own: Vec::new(), temporary: at("temporary") };
        let writable = Writable::of_sender(&places, &[at("source")]);
        let found = confined(&writable, || {
            drop(tempfile::tempfile_in(at("temporary")).unwrap());
            assert!(is_refused(fs::create_dir(at("temporary/dir"))));
            assert!(is_refused(fs::write(at("source/other"), b"")));
            fs::remove_file(at("source/sent")).unwrap();
        });
        if found.is_none() {
            eprintln!("skipped: this kernel has no Landlock");
        }
    }
}
