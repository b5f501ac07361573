//! Reading frames off a byte stream, in big gulps.
//!
//! Received bytes gather in a [`RecvBuffer`] until there is a whole frame; then all whole frames in it are
//! handed out from where they lie, and what is left, a little, moves to other memory. Once the length
//! of a large frame is known, what is received at once is as much as that frame needs.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use tokio::time::{Instant, timeout};

use super::{Frame, FrameError, LENGTH_LEN, MAX_FRAME, ReadMeasure, decode, measure};
use crate::recv_buffer::{Memory, ReadHalf, RecvBuffer};

/// Memory for frames: a payload of 256 KiB with its headers, as it comes encrypted, and some of what
/// follows; or many small frames.
const GULP: usize = (256 + 48) * 1024;
/// Bytes received at once while they are not known to belong to one large frame.
const READ: usize = 64 * 1024;
/// Room that a transport may need beside the wanted bytes: the record in which the wanted bytes end, and of
/// each record what is around it, one part in so many.
const LAST_RECORD: usize = 17 * 1024;
const AROUND: usize = 256;
/// Frames that are shorter together are copied: each holds what it lies in for as long as it is in use.
const SHORT: usize = 192 * 1024;
/// Who gathers waits for the content of the last of these that the bytes reached which came without a pause, but not for longer than is said there: at
/// 100 Mbit/s it comes in half of that. The first one begins late enough for the bursts of a connection that begins, the second one after seconds.
const GATHERING: [Gulp; 2] = [
    Gulp { from: 128 << 10, content: 64 << 10, limit: Duration::from_millis(10) },
    Gulp { from: 32 << 20, content: 192 << 10, limit: Duration::from_millis(30) },
];
/// Of a peer that is held short: what is received at once, and the longest frame.
const LITTLE: usize = 16 * 1024;
/// Of a peer that says little: what is received at once.
const QUIET: usize = 4 * 1024;

/// The receiving half of a connection.
pub struct FrameReader {
    stream: ReadHalf,
    /// Whole frames, to be handed out.
    whole: Bytes,
    /// Bytes that come behind them.
    buffer: RecvBuffer,
    memory: Memory,
    received: Arc<AtomicU64>,
    /// Memory is taken for little frames alone.
    is_short: bool,
    /// No frame is longer.
    longest: usize,
    /// Little has come since it had no memory, and may be all there is.
    is_quiet: bool,
    /// It may wait for more than the frame needs.
    gathering: Option<Gathering>,
}

/// What is waited for once so many bytes have come.
struct Gulp {
    from: usize,
    content: usize,
    limit: Duration,
}

/// How bytes come.
struct Gathering {
    received_at: Instant,
    /// Bytes that came without a pause.
    run: usize,
}

impl Gathering {
    /// So many came at `now`.
    fn received(&mut self, bytes: usize, now: Instant) {
        let limit = self.gulp().unwrap_or(&GATHERING[0]).limit;
        let is_pause = now.saturating_duration_since(self.received_at) >= limit;
        self.run = if is_pause { 0 } else { self.run.saturating_add(bytes) };
        self.received_at = now;
    }

    fn gulp(&self) -> Option<&'static Gulp> {
        GATHERING.iter().rev().find(|gulp| self.run >= gulp.from)
    }
}

/// Reason why there is no next frame.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The peer sent a length that no frame has. Nothing after it can be understood.
    #[error("the other end sent {source}")]
    Malformed {
        /// The frame's error.
        source: FrameError,
    },
    /// The stream ended without a goodbye: inside a frame (`missing` bytes of it), or between
    /// two on a transport that knows a proper end.
    #[error("the connection was cut off")]
    CutOff {
        /// Bytes of a begun frame that did not come; 0 between frames.
        missing: usize,
    },
    /// The peer is gone: its system reset the connection, or keepalive found nobody.
    #[error("the other end is gone")]
    Lost {
        /// The system's error.
        source: io::Error,
    },
    /// Received bytes are not what the peer encrypted, or the peer refused us with an alert.
    #[error("TLS: {source}")]
    Tls {
        /// The TLS library's error.
        source: rustls::Error,
    },
    /// Anything else the system reports.
    #[error("reading from the connection failed")]
    Io {
        /// The system's error.
        source: io::Error,
    },
}

impl FrameReader {
    /// Reads frames off `stream`.
    pub fn new(stream: ReadHalf) -> Self {
        let (buffer, memory) = (RecvBuffer::default(), Memory::default());
        Self {
            stream,
            whole: Bytes::new(),
            buffer,
            memory,
            received: Arc::default(),
            is_short: false,
            longest: MAX_FRAME,
            is_quiet: true,
            gathering: None,
        }
    }

    /// From now on waits for 64 KiB before it looks, and after some seconds for 192, but for 10 or 30 ms at most, as long as bytes come without pauses:
    /// for who passes on what comes and wakes for nothing else.
    pub fn gather(&mut self) {
        self.gathering = Some(Gathering { received_at: Instant::now(), run: 0 });
        let [.., Gulp { content, limit, .. }] = GATHERING;
        // In full records.
        self.stream.wait_for(content + content / 64, limit);
    }

    /// From now on a frame whose kind and body are longer than this together is an error, and no memory is taken for it.
    pub const fn limit(&mut self, longest: usize) {
        self.longest = longest;
    }

    /// From now on takes memory for frames of up to 16 KiB alone, some 70 KiB in all, or no longer:
    /// while the peer has no claim to more. A longer frame that comes meanwhile is an error, unless it was
    /// received together with what made this end.
    pub const fn hold_short(&mut self, is_short: bool) {
        self.is_short = is_short;
    }

    /// Gives memory back until something comes: for a connection that is idle.
    pub fn rest(&mut self) {
        self.memory.rest();
        self.buffer.rest();
        self.is_quiet = true;
    }

    /// The next frame, or `None` after the peer finished its direction.
    ///
    /// Cancel-safe: when the future is dropped, no byte is lost, and the next call goes on from
    /// there. After an error every call fails.
    pub async fn next(&mut self) -> Result<Option<Frame>, ReadError> {
        loop {
            if let Some(frame) = decode(&mut self.whole).map_err(malformed)? {
                return Ok(Some(frame));
            }
            let missing = match self.take_whole()? {
                None => continue,
                Some(missing) => missing,
            };
            self.check_length(missing)?;
            if self.buffer.is_resting() {
                let ready = poll_fn(|cx| self.stream.poll_ready(cx)).await;
                ready.map_err(|error| explain(error, missing, true))?;
            }
            let wanted = self.make_room(missing);
            // All that has come is in the buffer, so cancelling is safe.
            match self.receive(wanted, missing).await {
                Ok(0) if self.buffer.plain().is_empty() => return Ok(None),
                Ok(0) => return Err(ReadError::CutOff { missing }),
                Ok(count) => {
                    self.is_quiet &= count < QUIET;
                    if let Some(gathering) = &mut self.gathering {
                        gathering.received(count, Instant::now());
                    }
                    self.received.fetch_add(count as u64, Ordering::Relaxed);
                }
                Err(error) => return Err(explain(error, missing, self.buffer.plain().is_empty())),
            }
        }
    }

    /// Receives up to about `wanted` bytes, of which fewer than `missing` are of no use.
    async fn receive(&mut self, wanted: usize, missing: usize) -> io::Result<usize> {
        let Self { stream, buffer, gathering, .. } = self;
        let gulp = gathering.as_ref().and_then(Gathering::gulp).filter(|gulp| missing < gulp.content);
        if let (Some(gathering), Some(&Gulp { content, limit, .. })) = (gathering, gulp) {
            let gathered = poll_fn(|cx| stream.poll_receive(cx, buffer, wanted, content));
            if let Ok(received) = timeout(limit, gathered).await {
                return received;
            }
            gathering.run = 0;
        }
        poll_fn(|cx| stream.poll_receive(cx, buffer, wanted, missing)).await
    }

    /// Bytes of memory that it holds for what comes.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.buffer.plain().len() + self.buffer.raw().len() + self.buffer.room()
    }

    /// Bytes read so far, also of a frame that is not whole yet: whether the peer is alive shows
    /// here even when a frame takes minutes.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// The same for whoever looks while a frame is read.
    pub fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.received)
    }

    /// Takes all whole frames out of the buffer; if there is none, says how many bytes are missing.
    fn take_whole(&mut self) -> Result<Option<usize>, ReadError> {
        let (mut end, plain) = (0, self.buffer.plain());
        let missing = loop {
            match measure(&plain[end..]) {
                Ok(ReadMeasure::Whole(len)) => end += len,
                Ok(ReadMeasure::Missing(missing)) => break missing,
                // Frames before it are handed out first.
                Err(_) if end > 0 => break 0,
                Err(source) => return Err(malformed(source)),
            }
        };
        if end == 0 {
            return Ok(Some(missing));
        }
        if end < SHORT {
            self.whole = Bytes::copy_from_slice(&plain[..end]);
            self.buffer.drop_front(end);
        } else {
            let used = self.buffer.move_to(self.memory.take(GULP), end);
            self.whole = self.memory.lend(used, end);
        }
        Ok(None)
    }

    /// Refuses a frame of which `missing` bytes are still to come, if the peer may send none so long.
    fn check_length(&self, missing: usize) -> Result<(), ReadError> {
        let (begun, length) = (self.buffer.plain().len(), self.buffer.plain().len() + missing);
        let limit = if self.is_short { LITTLE.min(self.longest) } else { self.longest };
        if begun < LENGTH_LEN || length <= LENGTH_LEN + limit {
            return Ok(());
        }
        let (length, limit) = ((length - LENGTH_LEN) as u64, limit as u64);
        Err(malformed(FrameError::Oversized { length, limit }))
    }

    /// Makes room for the `missing` bytes, and says how many are to be received.
    fn make_room(&mut self, missing: usize) -> usize {
        let begun = self.buffer.plain().len();
        let (read, least) = match (self.is_quiet, self.is_short) {
            (true, _) => (QUIET, 0),
            (_, true) => (LITTLE, 0),
            _ => (READ, GULP),
        };
        let wanted = if begun + missing > read { missing } else { read };
        let room = wanted + wanted / AROUND + LAST_RECORD;
        if self.buffer.room() < room {
            let fresh = self.memory.take(least.max(begun + self.buffer.raw().len() + room));
            let used = self.buffer.move_to(fresh, 0);
            // Little memory is of no use for what follows.
            if used.len() >= GULP {
                self.memory.give_back(used);
            }
        }
        wanted
    }
}

const fn malformed(source: FrameError) -> ReadError {
    ReadError::Malformed { source }
}

fn explain(error: io::Error, missing: usize, between_frames: bool) -> ReadError {
    if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return ReadError::Tls { source: tls.clone() };
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof if between_frames => ReadError::CutOff { missing: 0 },
        io::ErrorKind::UnexpectedEof => ReadError::CutOff { missing },
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::TimedOut
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable => ReadError::Lost { source: error },
        _ => ReadError::Io { source: error },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::encode_head;
    use tokio::io::AsyncWriteExt;

    fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
        [&encode_head(kind, body.len()).unwrap()[..], body].concat()
    }

    #[tokio::test]
    async fn an_oversized_length_is_refused_before_memory_is_taken() {
        let (mut near, far) = tokio::io::duplex(64);
        let mut reader = FrameReader::new(Box::new(far));
        near.write_all(&[0xff; 4]).await.unwrap();
        let error = reader.next().await.unwrap_err();
        assert!(matches!(error, ReadError::Malformed { source: FrameError::Oversized { .. } }));
        assert!(reader.memory.take(0).len() <= GULP);
        assert!(reader.next().await.is_err(), "stays failed");
    }

    #[tokio::test]
    async fn a_peer_that_is_held_short_gets_little_memory_and_no_long_frame() {
        let (mut near, far) = tokio::io::duplex(2 * MAX_FRAME);
        let mut reader = FrameReader::new(Box::new(far));
        reader.hold_short(true);
        for _ in 0..100 {
            near.write_all(&frame(1, &vec![5; LITTLE - 1])).await.unwrap();
            assert_eq!(reader.next().await.unwrap().unwrap().body.len(), LITTLE - 1);
            let buffer = reader.buffer.plain().len() + reader.buffer.room();
            assert!(buffer <= 3 * LITTLE + LAST_RECORD, "{buffer}");
        }
        near.write_all(&frame(1, &vec![5; LITTLE])).await.unwrap();
        // Two pieces of it have come when it is refused; none is waited for.
        let error = reader.next().await.unwrap_err();
        assert!(matches!(error, ReadError::Malformed { source: FrameError::Oversized { .. } }), "{error}");
        reader.hold_short(false);
        assert_eq!(reader.next().await.unwrap().unwrap().body.len(), LITTLE, "no byte is lost");
        near.write_all(&frame(1, &vec![5; MAX_FRAME - 1])).await.unwrap();
        assert_eq!(reader.next().await.unwrap().unwrap().body.len(), MAX_FRAME - 1);
    }

    #[tokio::test]
    async fn a_limit_holds_for_the_longest_frame() {
        let (mut near, far) = tokio::io::duplex(MAX_FRAME);
        let mut reader = FrameReader::new(Box::new(far));
        reader.limit(70_000);
        near.write_all(&frame(1, &vec![5; 69_999])).await.unwrap();
        assert_eq!(reader.next().await.unwrap().unwrap().body.len(), 69_999);
        near.write_all(&frame(1, &vec![5; 70_000])).await.unwrap();
        let error = reader.next().await.unwrap_err();
        let oversized = FrameError::Oversized { length: 70_001, limit: 70_000 };
        assert!(matches!(error, ReadError::Malformed { source } if source == oversized), "{error}");
    }

    #[tokio::test]
    async fn a_cut_inside_a_frame_is_not_an_end() {
        let whole = frame(1, b"hello");
        for at in 0..=whole.len() {
            let (mut near, far) = tokio::io::duplex(64);
            let mut reader = FrameReader::new(Box::new(far));
            near.write_all(&whole[..at]).await.unwrap();
            drop(near);
            match reader.next().await {
                Ok(None) => assert_eq!(at, 0),
                Ok(Some(frame)) => assert_eq!((at, &frame.body[..]), (whole.len(), &b"hello"[..])),
                Err(ReadError::CutOff { missing }) => assert!(missing > 0, "cut at {at}"),
                Err(error) => panic!("cut at {at}: {error}"),
            }
        }
    }

    #[tokio::test]
    async fn dropping_the_future_loses_nothing() {
        let (mut near, far) = tokio::io::duplex(7);
        let mut reader = FrameReader::new(Box::new(far));
        let stream: Vec<u8> = (0..50).flat_map(|n| frame(n, &vec![n; usize::from(n) * 13])).collect();
        let feeding = tokio::spawn(async move {
            for part in stream.chunks(3) {
                near.write_all(part).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        for n in 0..50u8 {
            let found = loop {
                tokio::select! {
                    biased;
                    found = reader.next() => break found.unwrap().unwrap(),
                    () = tokio::task::yield_now() => {}
                }
            };
            assert_eq!((found.kind, found.body.len()), (n, usize::from(n) * 13));
            assert!(found.body.iter().all(|&byte| byte == n));
        }
        feeding.await.unwrap();
    }

    /// A receiver of many small files holds thousands of them at a time.
    #[tokio::test]
    async fn small_frames_that_are_kept_hold_no_memory_for_large_ones() {
        let (mut near, far) = tokio::io::duplex(1 << 16);
        let mut reader = FrameReader::new(Box::new(far));
        let feeding = tokio::spawn(async move {
            for len in (0..300).map(|n| n * 97 % 20_000) {
                near.write_all(&frame(1, &vec![5; len])).await.unwrap();
            }
        });
        let mut kept = Vec::new();
        while let Some(frame) = reader.next().await.unwrap() {
            kept.push(frame);
        }
        assert_eq!((kept.len(), reader.memory.lent()), (300, 0));
        feeding.await.unwrap();
    }

    #[tokio::test]
    async fn memory_stays_near_a_gulp_or_one_frame() {
        let (mut near, far) = tokio::io::duplex(1 << 16);
        let mut reader = FrameReader::new(Box::new(far));
        let feeding = tokio::spawn(async move {
            for len in [10, MAX_FRAME - 1, 100, 300_000, 0, MAX_FRAME - 1] {
                near.write_all(&frame(1, &vec![5; len])).await.unwrap();
            }
        });
        while let Some(frame) = reader.next().await.unwrap() {
            assert!(frame.body.len() < MAX_FRAME);
            let buffer = reader.buffer.plain().len() + reader.buffer.room();
            assert!(buffer <= GULP + MAX_FRAME + LAST_RECORD, "{buffer}");
        }
        feeding.await.unwrap();
    }

    /// Hands out what came, and notes how much had to come before it was to wake; with a pause before the last frame.
    struct Asked {
        frames: Vec<Vec<u8>>,
        least: Arc<std::sync::Mutex<Vec<usize>>>,
        pause: std::pin::Pin<Box<tokio::time::Sleep>>,
    }

    impl crate::recv_buffer::Receive for Asked {
        fn poll_receive(
            &mut self,
            cx: &mut std::task::Context<'_>,
            buffer: &mut RecvBuffer,
            _: usize,
            least: usize,
        ) -> std::task::Poll<io::Result<usize>> {
            self.least.lock().unwrap().push(least);
            if self.frames.len() == 1 && self.pause.as_mut().poll(cx).is_pending() {
                return std::task::Poll::Pending;
            }
            let frame = self.frames.pop().unwrap_or_default();
            buffer.free()[..frame.len()].copy_from_slice(&frame);
            buffer.received(frame.len());
            buffer.take_in(frame.len());
            std::task::Poll::Ready(Ok(frame.len()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_gathers_waits_for_more_once_bytes_come_without_pauses_but_not_for_long() {
        let piece = frame(1, &[5; 32 * 1024 - 5]);
        for (from, content) in
            GATHERING.map(|gulp| (gulp.from, Some(gulp.content))).into_iter().chain([(0, None)])
        {
            let before = from / piece.len();
            let asked = Arc::default();
            let pause = Box::pin(tokio::time::sleep(Duration::from_secs(1)));
            let stream = Asked { frames: vec![piece.clone(); before + 3], least: Arc::clone(&asked), pause };
            let mut reader = FrameReader::new(Box::new(stream));
            reader.is_quiet = false;
            if content.is_some() {
                reader.gather();
            }
            for _ in 0..before + 3 {
                reader.next().await.unwrap().unwrap();
            }
            // The last one comes after a second.
            let expected = match content {
                Some(content) => [vec![content; 4], vec![4; 2]].concat(),
                None => vec![4; 4],
            };
            assert!(asked.lock().unwrap().ends_with(&expected), "{content:?}");
        }
    }
}
