//! Frames, hellos of a pipe, TLS records.

use towpath_link::frame::encode_head;
use towpath_link::tls::fuzzing;

use crate::input::Written;

pub fn frames() -> Vec<Vec<u8>> {
    let frame = |kind, body: &[u8]| [&encode_head(kind, body.len()).expect("short")[..], body].concat();
    vec![[frame(0, b"hello"), frame(1, b""), frame(255, &[7; 300])].concat()]
}

pub fn pipes() -> Vec<Vec<u8>> {
    let hello = |role| [b"towpipe\x01", &[role][..], &[2; 32], &[4; 32]].concat();
    vec![[hello(1), frames().concat()].concat(), hello(0), b"Last login: today".to_vec()]
}

/// Insides of records: content, padded content, a change of keys, a goodbye.
fn insides() -> Vec<&'static [u8]> {
    vec![b"content\x17", b"\x18\0\0\x01\x01\x16", b"more\x17\0\0\0", b"\x17", b"\x01\0\x15"]
}

pub fn contents() -> Vec<Vec<u8>> {
    let all = Written::default().runs(insides()).done();
    let long = [&[3; 1 << 14][..], b"\x17"].concat();
    vec![all, Written::default().run(&long).done(), Written::default().run(b"\x02\x28\x15").done()]
}

pub fn records() -> Vec<Vec<u8>> {
    vec![fuzzing::seal(&insides()), fuzzing::seal(&[b"content\x17"]), b"\x15\x03\x03\0\x02\x02\x28".to_vec()]
}

/// Records in clear, as a handshake has them.
pub fn handshakes() -> Vec<Vec<u8>> {
    let record = |len: usize| [&[22, 3, 1][..], &(len as u16).to_be_bytes(), &vec![7; len]].concat();
    let stream = [record(300), record(0), record(5000), record(1)].concat();
    [&[1, 4, 200, 9][..], &[255; 30], b""]
        .map(|lens| Written::default().run(lens).rest(&stream).done())
        .into()
}
