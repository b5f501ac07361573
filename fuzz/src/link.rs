//! Parsers of `towpath-link`: frames, the hello of a pipe, TLS records.

use std::io::Cursor;
use std::time::Duration;

use bytes::Bytes;
use towpath_content::NodeId;
use towpath_link::PeerProof;
use towpath_link::frame::{self, ReadMeasure};
use towpath_link::pipe::{self, Role};
use towpath_link::tls::fuzzing;

use crate::input::Source;

/// Frames off a connection.
pub fn frame(data: &[u8]) {
    let mut buffer = Bytes::copy_from_slice(data);
    loop {
        let (before, measured) = (buffer.len(), frame::measure(&buffer));
        match frame::decode(&mut buffer) {
            Ok(Some(frame)) => {
                let whole = frame.body.len() + frame::HEAD_LEN;
                assert_eq!((measured, buffer.len()), (Ok(ReadMeasure::Whole(whole)), before - whole));
            }
            Ok(None) => {
                return assert!(matches!(measured, Ok(ReadMeasure::Missing(1..))) && buffer.len() == before);
            }
            Err(error) => return assert_eq!(measured, Err(error)),
        }
    }
}

/// Bytes that come through a pipe: a hello, then frames.
pub fn pipe(data: &[u8]) {
    thread_local! {
        static RUNTIME: tokio::runtime::Runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    }
    let ours = NodeId([9; 32]);
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let (read, write) = (Cursor::new(data.to_vec()), tokio::io::sink());
            let opened = pipe::open(read, write, ours, Role::Initiator, Duration::from_secs(60)).await;
            let Ok(mut connection) = opened else { return };
            let told = &data[9..41];
            assert_eq!((connection.peer.0.as_slice(), connection.proof), (told, PeerProof::Claim));
            let mut len = HELLO_LEN;
            while let Ok(Some(frame)) = connection.reader.next().await {
                len += frame::HEAD_LEN + frame.body.len();
            }
            assert!(len <= data.len());
        });
    });
}

/// Bytes of a pipe's hello: magic, role, node id, nonce.
pub const HELLO_LEN: usize = 8 + 1 + 32 + 32;

/// Records as they come, of which a stranger may send anything.
pub fn tls_record(data: &[u8]) {
    match fuzzing::record_len(data) {
        Ok(Some(len)) => assert!(len <= 5 + (1 << 14) + 256),
        Ok(None) => assert!(data.len() < 5),
        Err(_) => {}
    }
    assert!(fuzzing::open(data).0.len() <= data.len());
}

/// Records that a connection's other end may encrypt: each run is the inside of one, its type and padding included.
pub fn tls_opening(data: &[u8]) {
    let (mut source, mut inner) = (Source::new(data), Vec::new());
    while !source.is_empty() && inner.len() < 64 {
        let run = source.run();
        inner.push(if run.len() > 1 << 15 { &run[..1 << 15] } else { run });
    }
    let stream = fuzzing::seal(&inner);
    let (content, is_refused) = fuzzing::open(&stream);
    let (expected, is_wrong) = insides(&inner);
    assert_eq!(content, expected);
    assert_eq!(is_refused, is_wrong);
    let mut changed = stream;
    if let Some(last) = changed.last_mut() {
        *last ^= 1;
        assert!(fuzzing::open(&changed).0.len() <= expected.len());
    }
}

/// Content of such records, up to one that ends the connection; and whether that was wrong.
fn insides(inner: &[&[u8]]) -> (Vec<u8>, bool) {
    let (mut content, mut idle) = (Vec::new(), 0);
    for inner in inner {
        let Some(end) = inner.iter().rposition(|byte| *byte != 0) else { return (content, true) };
        let inside = &inner[..end];
        // A record is too long by its head alone: what is sealed takes 16 bytes more.
        if inside.len() > 1 << 14 || inner.len() + 16 > (1 << 14) + 256 {
            return (content, true);
        }
        idle = if inner[end] == 23 && !inside.is_empty() { 0 } else { idle + 1 };
        match (inner[end], inside) {
            (23, _) => content.extend_from_slice(inside),
            (21, [_, 0]) => return (content, idle > 32),
            (22, [24, 0, 0, 1, 0..=1]) => {}
            _ => return (content, true),
        }
        if idle > 32 {
            return (content, true);
        }
    }
    (content, false)
}

/// The records of a handshake, which come in pieces of any length: what is handed to the TLS library never goes
/// beyond a record's end, and nothing is lost.
pub fn tls_handshake(data: &[u8]) {
    let mut source = Source::new(data);
    let (lens, stream) = (source.run(), source.rest());
    let (parts, rest) = fuzzing::records(stream, lens);
    assert!(stream.starts_with(&parts.concat()));
    assert!(parts.iter().map(Vec::len).sum::<usize>() + rest.len() <= stream.len());
    let mut end = 0;
    let mut at = 0;
    for part in &parts {
        assert!(!part.is_empty());
        if at == end {
            end += 5 + usize::from(u16::from_be_bytes([stream[at + 3], stream[at + 4]]));
        }
        at += part.len();
        assert!(at <= end, "a part ends with its record, or before");
    }
    assert!(stream[at..].starts_with(&rest));
}
