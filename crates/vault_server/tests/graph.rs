//! The server has no code for keys of blocks: nothing that decrypts is among what it is built from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Names of the packages in the lock file with those that each needs.
fn packages() -> BTreeMap<String, Vec<String>> {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let text = std::fs::read_to_string(lock).expect("the lock file of the workspace");
    let quoted = |line: &str| line.split('"').nth(1).unwrap_or_default().to_owned();
    let package = |block: &str| {
        let name = block.lines().find(|line| line.starts_with("name = ")).map(quoted)?;
        let needs = block.lines().filter(|line| line.starts_with(" \"")).map(quoted);
        // Behind a name may stand its version.
        let needs = needs.map(|need| need.split(' ').next().unwrap_or_default().to_owned());
        Some((name, needs.collect()))
    };
    text.split("[[package]]").filter_map(package).collect()
}

fn needed(packages: &BTreeMap<String, Vec<String>>, root: &str) -> BTreeSet<String> {
    let (mut found, mut left) = (BTreeSet::new(), vec![root.to_owned()]);
    while let Some(name) = left.pop() {
        left.extend(packages.get(&name).into_iter().flatten().filter(|need| !found.contains(*need)).cloned());
        found.insert(name);
    }
    found
}

#[test]
fn the_server_knows_neither_the_client_nor_its_ciphers() {
    let packages = packages();
    let needed = needed(&packages, "towpath-vault-server");
    assert!(needed.contains("towpath-vault-format") && needed.contains("blake3"), "{needed:?}");
    for name in ["towpath-vault", "aes-gcm-siv", "argon2"] {
        assert!(!needed.contains(name), "{name}");
    }
}
