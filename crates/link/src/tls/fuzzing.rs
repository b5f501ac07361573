//! Doors for the fuzz targets in `fuzz/`: records that a peer may send, and what is made of them. Nothing else asks for
//! the feature `fuzzing`.

use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use ring::aead::Aad;
use rustls::{CipherSuite, Error};
use towpath_content::lock::lock;

use super::handshake::HandshakeRecords;
use super::keys::{Keys, Suite};
use super::record::{self, OpenedRecord, Opening};
use super::socket::RecordSocket;

/// Bytes in front of the first record that are none of its business.
const BEFORE: usize = 3;

fn keys() -> Result<Keys, Error> {
    Keys::new(Suite::new(CipherSuite::TLS13_AES_128_GCM_SHA256)?, &[9; 32])
}

/// Length that the record at the front of these bytes states.
pub fn record_len(bytes: &[u8]) -> Result<Option<usize>, Error> {
    record::record_len(bytes)
}

/// HandshakeRecords with these insides, type and padding included, as a peer encrypts them who may also send what this
/// program never does.
pub fn seal(inner: &[&[u8]]) -> Vec<u8> {
    let (mut stream, Ok(mut keys)) = (Vec::new(), keys()) else { return Vec::new() };
    for inner in inner {
        let [high, low] = ((inner.len() + 16) as u16).to_be_bytes();
        let head = [0x17, 3, 3, high, low];
        let mut body = inner.to_vec();
        let sealed = keys
            .for_next_record()
            .map(|(key, nonce)| key.seal_in_place_append_tag(nonce, Aad::from(head), &mut body));
        if !matches!(sealed, Ok(Ok(()))) {
            break;
        }
        stream.extend_from_slice(&head);
        stream.extend_from_slice(&body);
        let end = inner.iter().rposition(|byte| *byte != 0).map_or(0, |end| end + 1);
        if let ([24, 0, 0, 1, 0..=1, 22], Ok(next)) = (&inner[..end], keys.next()) {
            keys = next;
        }
    }
    stream
}

/// The content of records that were sealed so, and whether one of them ends the connection as a violation.
pub fn open(stream: &[u8]) -> (Vec<u8>, bool) {
    let Ok(keys) = keys() else { return (Vec::new(), true) };
    let mut memory = [&[0xee; BEFORE][..], stream].concat();
    let (mut opening, mut at, mut to) = (Opening::new(keys), BEFORE, BEFORE);
    let is_refused = loop {
        let len = match record::record_len(&memory[at..]) {
            Ok(Some(len)) if memory.len() - at >= len => len,
            Ok(_) => break false,
            Err(_) => break true,
        };
        match opening.open(&mut memory, at..at + len, to) {
            Ok(OpenedRecord::Content(content)) => to += content,
            Ok(OpenedRecord::KeyUpdate { .. }) => {}
            Ok(OpenedRecord::Closed) => break false,
            Err(_) => break true,
        }
        at += len;
    };
    assert!(memory.starts_with(&[0xee; BEFORE]), "what lies before the records is left alone");
    (memory[BEFORE..to].to_vec(), is_refused)
}

/// Runs of a handshake's stream as they are handed to the TLS library, and what is left behind the last one. They
/// come in reads of at most `lens` bytes each, then in one.
pub fn records(stream: &[u8], lens: &[u8]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let (mut records, mut parts) = (HandshakeRecords::default(), Vec::new());
    let socket = Slowly(Mutex::new((stream.to_vec().into(), lens.to_vec().into())));
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Ok(part)) = pin!(records.next(&socket)).poll(&mut context) {
        parts.push(part.to_vec());
    }
    (parts, records.rest())
}

/// A socket on which something lies ready at all times, until the end: what is still to come of the stream, and how much
/// of it comes with each read.
struct Slowly(Mutex<(VecDeque<u8>, VecDeque<u8>)>);

impl RecordSocket for Slowly {
    fn poll_readable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_read(&self, _: &mut Context<'_>, space: &mut [u8]) -> Poll<io::Result<usize>> {
        let (stream, lens) = &mut *lock(&self.0);
        let most = lens.pop_front().map_or(usize::MAX, |len| usize::from(len).max(1));
        let count = most.min(space.len()).min(stream.len());
        for (place, byte) in space.iter_mut().zip(stream.drain(..count)) {
            *place = byte;
        }
        Poll::Ready(Ok(count))
    }

    fn poll_write(&self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_shutdown(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
