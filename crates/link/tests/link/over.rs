//! TLS on a stream that is no socket: a pair in memory.

use std::io;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf, ReadHalf, WriteHalf, duplex, split};
use towpath_content::NodeId;
use towpath_link::frame::ReadError;
use towpath_link::tls::{HandshakeError, RecordSocket, accept_over, open_over};
use towpath_link::{Connection, Identity, PathInfo, PathProbe, PeerProof, Protocol};

use crate::pair::{LIMIT, identity};

const OTHER: Protocol = Protocol(b"tow-test/1");

/// One end of a pair in memory.
struct MemoryEnd {
    read: Mutex<ReadHalf<DuplexStream>>,
    write: Mutex<WriteHalf<DuplexStream>>,
}

fn memory_pair() -> (MemoryEnd, MemoryEnd) {
    let end = |stream| {
        let (read, write) = split(stream);
        MemoryEnd { read: Mutex::new(read), write: Mutex::new(write) }
    };
    let (near, far) = duplex(5000);
    (end(near), end(far))
}

impl RecordSocket for MemoryEnd {
    fn poll_readable(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_read(&self, cx: &mut Context<'_>, space: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut space = ReadBuf::new(space);
        ready!(Pin::new(&mut *self.read.lock().unwrap()).poll_read(cx, &mut space))?;
        Poll::Ready(Ok(space.filled().len()))
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.write.lock().unwrap()).poll_write(cx, bytes)
    }

    fn poll_shutdown(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.write.lock().unwrap()).poll_shutdown(cx)
    }
}

async fn opened(
    near: &Identity,
    far: &Identity,
    expected: NodeId,
    speaks: Protocol,
) -> (Result<Connection, HandshakeError>, Result<Connection, HandshakeError>) {
    let (one, other) = memory_pair();
    let probe = PathProbe::from_fn(|| PathInfo { unsent_bytes: 7, ..PathInfo::default() });
    tokio::join!(
        open_over(one, near, expected, speaks, LIMIT, probe),
        accept_over(other, far, &[Protocol::PEER, OTHER], LIMIT, PathProbe::none()),
    )
}

#[tokio::test]
async fn both_ends_know_each_other_and_frames_go_both_ways() {
    let (near, far) = (identity(), identity());
    for protocol in [Protocol::PEER, OTHER] {
        let (one, other) = opened(&near, &far, far.node_id(), protocol).await;
        let (mut one, mut other) = (one.unwrap(), other.unwrap());
        assert_eq!((one.peer, other.peer), (far.node_id(), near.node_id()));
        assert_eq!((one.proof, one.binding, one.protocol), (PeerProof::Key, other.binding, protocol));
        assert_eq!((other.protocol, other.address), (protocol, None));
        assert_eq!(one.info.read().unwrap().unsent_bytes, 7);
        for len in [1, 16_384, 300_000] {
            let sending = async {
                one.writer.send(3, b"", &vec![7; len]).await.unwrap();
                one.writer.flush().await.unwrap();
            };
            let (frame, ()) = tokio::join!(other.reader.next(), sending);
            assert_eq!(frame.unwrap().unwrap().body, vec![7; len]);
        }
        one.writer.finish().await.unwrap();
        assert!(other.reader.next().await.unwrap().is_none(), "a goodbye");
        drop(other);
        let error = one.reader.next().await.unwrap_err();
        assert!(matches!(error, ReadError::CutOff { missing: 0 }), "{error}");
    }
}

#[tokio::test]
async fn another_node_or_protocol_is_refused() {
    let (near, far) = (identity(), identity());
    let (one, other) = opened(&near, &far, identity().node_id(), OTHER).await;
    assert!(matches!(one.unwrap_err(), HandshakeError::WrongNode { found, .. } if found == far.node_id()));
    assert!(other.is_err());
    let (one, other) = opened(&near, &far, far.node_id(), Protocol(b"unknown")).await;
    assert!(one.is_err());
    let error = other.unwrap_err();
    assert!(matches!(error, HandshakeError::NoProtocol), "{error}");
}

#[tokio::test]
async fn who_says_nothing_is_given_up() {
    let (one, _silent) = memory_pair();
    let (near, limit) = (identity(), Duration::from_millis(50));
    let error = accept_over(one, &near, &[OTHER], limit, PathProbe::none()).await.unwrap_err();
    assert!(matches!(error, HandshakeError::TimedOut { .. }), "{error}");
}
