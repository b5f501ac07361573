//! A copy that another process of this machine makes, the daemon: it is handed what it can't have by itself. That is
//! the other side, which is started here, at the person's terminal; the working directory, as part of each path; and
//! the umask.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use towpath_api::copy::{CopyRequest, Mode};
use towpath_files::metadata::umask;

use crate::address::{Address, Remote};
use crate::channel::{Rsh, RshProcess};
use crate::ciphers::AesHosts;
use crate::error::SshError;

/// Makes `request`, of a person who is in the directory `here`, one that another process can do. Returns the command that
/// leads to the other machine, if there is one. `hosts` are known to that other process, which keeps them.
pub async fn hand_over(
    request: &mut CopyRequest,
    here: &Path,
    hosts: &AesHosts,
) -> Result<Option<RshProcess>, SshError> {
    let other = other_side(request)?;
    let is_receiver =
        Address::parse(&request.destination).is_ok_and(|address| matches!(address, Address::Local(_)));
    let mode = request.mode;
    for named in request.sources.iter_mut().chain([&mut request.destination]) {
        if let Address::Local(_) = Address::parse(named)? {
            *named = absolute(here, named, mode);
        }
    }
    for directory in request.options.search.iter_mut().filter(|_| is_receiver) {
        *directory = here.join(OsStr::from_bytes(directory)).into_os_string().into_encoded_bytes();
    }
    request.umask = Some(umask());
    let Some(other) = other else { return Ok(None) };
    let rsh = Rsh::choose(request.rsh.as_deref())?.with_quick_cipher(&other, hosts).await;
    let (process, socket) = RshProcess::start(&other, &rsh, &request.tow_path)?;
    // The other process has other variables; it names the command in errors.
    request.rsh.get_or_insert_with(Rsh::usual);
    request.reached = Some(socket);
    Ok(Some(process))
}

/// The machine on one side of a copy; nothing if there are some on both, which is refused anyway.
fn other_side(request: &CopyRequest) -> Result<Option<Remote>, SshError> {
    let remote = |named: &OsString| match Address::parse(named)? {
        Address::Remote(remote) => Ok(Some(remote)),
        Address::Local(_) => Ok(None),
    };
    let destination = remote(&request.destination)?;
    let sources: Vec<_> = request.sources.iter().map(remote).collect::<Result<_, SshError>>()?;
    let source = sources.into_iter().flatten().next();
    Ok(match (source, destination) {
        (Some(_), Some(_)) => None,
        (source, destination) => source.or(destination),
    })
}

/// A path as it is for processes elsewhere. What it means to cp and rsync stays: `.` is what is in it.
fn absolute(here: &Path, named: &OsStr, mode: Mode) -> OsString {
    let path = Path::new(named);
    if named.is_empty() {
        return named.to_owned();
    }
    if path.components().all(|part| part == Component::CurDir) {
        let end = if mode == Mode::Sync { "" } else { "." };
        return here.join(end).into_os_string();
    }
    here.join(path).into_os_string()
}

#[cfg(test)]
mod tests {
    use towpath_api::copy::CopyOptions;

    use super::*;

    fn no_hosts() -> AesHosts {
        AesHosts::new("/no/such/folder".into())
    }

    fn request(mode: Mode, sources: &[&str], destination: &str) -> CopyRequest {
        CopyRequest {
            mode,
            sources: sources.iter().map(Into::into).collect(),
            destination: destination.into(),
            rsh: Some("/no/such/program".into()),
            tow_path: "tow".into(),
            reached: None,
            bind: Vec::new(),
            umask: None,
            options: CopyOptions { search: vec![b"s".to_vec()], ..CopyOptions::default() },
        }
    }

    #[tokio::test]
    async fn paths_name_what_they_named() {
        for (mode, named, whole) in [
            (Mode::Sync, "a", "/here/a"),
            (Mode::Sync, "a/", "/here/a/"),
            (Mode::Sync, "a/.", "/here/a/."),
            (Mode::Sync, "./h:a", "/here/./h:a"),
            (Mode::Sync, "/b/", "/b/"),
            (Mode::Sync, "..", "/here/.."),
            (Mode::Sync, ".", "/here/"),
            (Mode::Cp, ".", "/here/."),
            (Mode::Cp, "./.", "/here/."),
            (Mode::Cp, "", ""),
        ] {
            let mut request = request(mode, &[named], "to");
            assert!(hand_over(&mut request, Path::new("/here"), &no_hosts()).await.unwrap().is_none());
            assert_eq!(request.sources, [whole], "{named}");
            assert_eq!((request.destination, request.umask), ("/here/to".into(), Some(umask())));
            assert_eq!(request.options.search, [b"/here/s"]);
        }
    }

    #[tokio::test]
    async fn only_what_is_on_one_side_is_started() {
        let started = async |sources: &[&str], destination: &str| {
            hand_over(&mut request(Mode::Cp, sources, destination), Path::new("/here"), &no_hosts()).await
        };
        for (sources, destination) in [(&["h:a"][..], "b"), (&["a", "b"], "h:c"), (&["a", "h:b"], "c")] {
            assert!(matches!(started(sources, destination).await, Err(SshError::NoSuchCommand { .. })));
        }
        assert!(started(&["h:a"], "g:b").await.unwrap().is_none());
        assert!(matches!(started(&["h:a", "http://x/"], "b").await, Err(SshError::Address { .. })));
    }
}
