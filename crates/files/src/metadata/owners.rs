//! Users and groups by number and by name, as this machine knows them.
//!
//! Looking one up can ask a directory service over the network, so answers are kept. User and
//! group 0 are themselves on every machine and never go by name.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::Hash;
use std::os::unix::ffi::OsStrExt;
use std::sync::{LazyLock, Mutex, PoisonError};

use towpath_content::tree::{MAX_OWNER_NAME, Owner};

/// Answers kept of each kind; a tree with more owners than this asks again.
const KEPT: usize = 16 * 1024;

type OwnerCache<K, V> = LazyLock<Mutex<HashMap<K, V>>>;

static USER_NAMES: OwnerCache<u32, Vec<u8>> = LazyLock::new(Mutex::default);
static GROUP_NAMES: OwnerCache<u32, Vec<u8>> = LazyLock::new(Mutex::default);
static USER_IDS: OwnerCache<Vec<u8>, Option<u32>> = LazyLock::new(Mutex::default);
static GROUP_IDS: OwnerCache<Vec<u8>, Option<u32>> = LazyLock::new(Mutex::default);

/// The user of this number, with the name it has here.
pub(crate) fn named_user(id: u32) -> Owner {
    let ask = |&id: &u32| uzers::get_user_by_uid(id).map_or(Vec::new(), |user| usable(user.name()));
    Owner { id, name: kept(&USER_NAMES, id, ask) }
}

/// The group of this number, with the name it has here.
pub(crate) fn named_group(id: u32) -> Owner {
    let ask = |&id: &u32| uzers::get_group_by_gid(id).map_or(Vec::new(), |group| usable(group.name()));
    Owner { id, name: kept(&GROUP_NAMES, id, ask) }
}

/// The number `user` has here: that of its name if it has one here, else its own.
pub(super) fn local_user(user: &Owner, numeric: bool) -> u32 {
    let ask = |name: &Vec<u8>| uzers::get_user_by_name(OsStr::from_bytes(name)).map(|user| user.uid());
    local(user, numeric, &USER_IDS, ask)
}

/// The number `group` has here.
pub(super) fn local_group(group: &Owner, numeric: bool) -> u32 {
    let ask = |name: &Vec<u8>| uzers::get_group_by_name(OsStr::from_bytes(name)).map(|group| group.gid());
    local(group, numeric, &GROUP_IDS, ask)
}

/// The user that a person names, by name or by number, as they are on this machine; `None` if the
/// name is empty.
pub fn user(text: &str) -> Result<Option<Owner>, String> {
    parse(text, "user", |name| uzers::get_user_by_name(name).map(|user| user.uid()))
}

/// The same for a group.
pub fn group(text: &str) -> Result<Option<Owner>, String> {
    parse(text, "group", |name| uzers::get_group_by_name(name).map(|group| group.gid()))
}

fn parse(text: &str, what: &str, ask: impl FnOnce(&str) -> Option<u32>) -> Result<Option<Owner>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let id = text.parse().ok().or_else(|| ask(text));
    let id = id.ok_or_else(|| format!("there is no {what} {} here", crate::display_name(text.as_bytes())))?;
    Ok(Some(Owner { id, name: Vec::new() }))
}

fn local(
    owner: &Owner,
    numeric: bool,
    ids: &OwnerCache<Vec<u8>, Option<u32>>,
    ask: impl FnOnce(&Vec<u8>) -> Option<u32>,
) -> u32 {
    let by_number = numeric || owner.id == 0 || owner.name.is_empty() || owner.name.contains(&0);
    if by_number { owner.id } else { kept(ids, owner.name.clone(), ask).unwrap_or(owner.id) }
}

/// A name that a tree descriptor can hold, or none.
fn usable(name: &OsStr) -> Vec<u8> {
    Some(name.as_bytes()).filter(|name| name.len() <= MAX_OWNER_NAME).unwrap_or_default().to_vec()
}

fn kept<K: Hash + Eq, V: Clone>(answers: &OwnerCache<K, V>, key: K, ask: impl FnOnce(&K) -> V) -> V {
    let mut answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(answer) = answers.get(&key) {
        return answer.clone();
    }
    if answers.len() >= KEPT {
        answers.clear();
    }
    let answer = ask(&key);
    answers.insert(key, answer.clone());
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_goes_by_name_unless_it_is_unknown_or_numbers_were_asked_for() {
        let known = (1..65_000).map(named_user).find(|user| !user.name.is_empty());
        let Some(known) = known else {
            println!("skipped: only root has a name here");
            return;
        };
        let sent = Owner { id: known.id + 7, name: known.name };
        assert_eq!(local_user(&sent, false), known.id);
        assert_eq!(local_user(&sent, true), known.id + 7);
        let strange = Owner { id: 4711, name: b"no such user".to_vec() };
        assert_eq!((local_user(&strange, false), local_group(&strange, false)), (4711, 4711));
        let nul = Owner { id: 4711, name: b"root\0".to_vec() };
        assert_eq!(local_user(&nul, false), 4711);
    }

    #[test]
    fn root_is_root_whatever_it_is_called() {
        let called = Owner { id: 0, name: b"daemon".to_vec() };
        assert_eq!((local_user(&called, false), local_group(&called, false)), (0, 0));
        assert_eq!(named_user(0).name, b"root");
    }
}
