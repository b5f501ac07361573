//! TLS 1.3 records after the handshake (RFC 8446 §5), without I/O.
//!
//! [`Opening`] decrypts each record where it lies and moves its content, in the same pass, behind that
//! of the record before it. [`Sealing`] gathers the content of a record and encrypts it where it then
//! lies. The TLS library does neither: it copies each record twice at either end.
//!
//! A record's nonce is its number under its key ([`super::keys`]), which only ever grows; a record that
//! fails to open ends the connection, and so does everything else that is not allowed here.

use std::ops::Range;

use ring::aead::Aad;
use rustls::{AlertDescription, ContentType, Error, InvalidMessage, PeerMisbehaved};

use super::keys::Keys;

/// Before each record: type, version, length.
pub(super) const HEAD: usize = 5;
/// The most bytes of content in a record.
pub(super) const CONTENT: usize = 1 << 14;
/// Behind the content: its type, and the tag.
const TAIL: usize = 1 + TAG;
const TAG: usize = 16;
/// A full record of ours.
pub(super) const RECORD: usize = HEAD + CONTENT + TAIL;
/// The most that may follow a head: content, padding and whatever the cipher adds.
const LONGEST: usize = CONTENT + 256;

const CLOSE_NOTIFY: u8 = 0;
const KEY_UPDATE: u8 = 24;
/// Records without content that are taken in a row.
const IDLE_RECORDS: u32 = 32;

/// An opened record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenedRecord {
    /// So many bytes of content.
    Content(usize),
    /// The peer sends with other keys now; `answer` if we are to do the same.
    KeyUpdate {
        /// It asks so.
        answer: bool,
    },
    /// The peer sends nothing more.
    Closed,
}

/// Length of the record at the front of `bytes`, head included; `None` if its head is not all here.
pub(super) fn record_len(bytes: &[u8]) -> Result<Option<usize>, Error> {
    let Some(&[kind, _, _, high, low]) = bytes.first_chunk::<HEAD>() else { return Ok(None) };
    if ContentType::from(kind) != ContentType::ApplicationData {
        return Err(Error::InappropriateMessage {
            expect_types: vec![ContentType::ApplicationData],
            got_type: kind.into(),
        });
    }
    match usize::from(u16::from_be_bytes([high, low])) {
        len if len > LONGEST => Err(Error::InvalidMessage(InvalidMessage::MessageTooLarge)),
        len => Ok(Some(HEAD + len)),
    }
}

/// The receiving direction.
pub(super) struct Opening {
    keys: Keys,
    idle: u32,
}

impl Opening {
    /// Opens what was sealed with these keys.
    pub(super) const fn new(keys: Keys) -> Self {
        Self { keys, idle: 0 }
    }

    /// Opens the whole record at `record` in `memory`. Its content, if that is what it has, lies at
    /// `to` then, which is before the record; what is between there and the record's end is void.
    pub(super) fn open(
        &mut self,
        memory: &mut [u8],
        record: Range<usize>,
        to: usize,
    ) -> Result<OpenedRecord, Error> {
        let head: [u8; HEAD] = *memory[record.clone()].first_chunk().ok_or(Error::DecryptError)?;
        let (key, nonce) = self.keys.for_next_record()?;
        let (within, body) = (&mut memory[to..record.end], record.start + HEAD - to);
        let inner = key.open_within(nonce, Aad::from(head), within, body..);
        let inner = inner.map_err(|_| Error::DecryptError)?;
        let (kind, content) = unpad(inner)?;
        let opened = self.understand(kind, content)?;
        self.idle = if matches!(opened, OpenedRecord::Content(1..)) { 0 } else { self.idle + 1 };
        if self.idle > IDLE_RECORDS {
            return Err(Error::PeerMisbehaved(PeerMisbehaved::TooManyEmptyFragments));
        }
        Ok(opened)
    }

    fn understand(&mut self, kind: ContentType, content: &[u8]) -> Result<OpenedRecord, Error> {
        match (kind, content) {
            (ContentType::ApplicationData, content) => Ok(OpenedRecord::Content(content.len())),
            (ContentType::Alert, &[_, CLOSE_NOTIFY]) => Ok(OpenedRecord::Closed),
            (ContentType::Alert, &[_, alert]) => Err(Error::AlertReceived(alert.into())),
            // The one message there may be: there are no tickets and no late questions for keys.
            (ContentType::Handshake, &[KEY_UPDATE, 0, 0, 1, answer @ 0..=1]) => {
                self.keys = self.keys.next()?;
                Ok(OpenedRecord::KeyUpdate { answer: answer == 1 })
            }
            _ => Err(Error::InappropriateMessage {
                expect_types: vec![ContentType::ApplicationData],
                got_type: kind,
            }),
        }
    }
}

/// Splits what was encrypted into type and content, without the zeros behind them.
fn unpad(inner: &[u8]) -> Result<(ContentType, &[u8]), Error> {
    let end = inner.iter().rposition(|&byte| byte != 0);
    match end.and_then(|end| Some((inner.get(end)?, &inner[..end]))) {
        Some((_, content)) if content.len() > CONTENT => Err(Error::PeerSentOversizedRecord),
        Some((&kind, content)) => Ok((kind.into(), content)),
        None => Err(Error::PeerMisbehaved(PeerMisbehaved::IllegalTlsInnerPlaintext)),
    }
}

/// The sending direction.
pub(super) struct Sealing {
    keys: Keys,
}

impl Sealing {
    /// Seals with these keys.
    pub(super) const fn new(keys: Keys) -> Self {
        Self { keys }
    }

    /// Puts a record with the content that `fill` writes, and tells how long it is, to the front of
    /// `out`. Returns the record's length. `fill` gets room for as much content as fits into `out` and a record.
    pub(super) fn seal(
        &mut self,
        out: &mut [u8],
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize, Error> {
        self.seal_as(ContentType::ApplicationData, out, fill)
    }

    /// True if the keys have encrypted all that they may: then the next record is a key update.
    pub(super) const fn needs_update(&self) -> bool {
        // One is left for the update itself, and one for a goodbye.
        self.keys.records_left() <= 2
    }

    /// Tells the peer that other keys are used from here on, and does so.
    pub(super) fn update(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        let len = self.seal_message(ContentType::Handshake, out, &[KEY_UPDATE, 0, 0, 1, 0])?;
        self.keys = self.keys.next()?;
        Ok(len)
    }

    /// Says that nothing more comes.
    pub(super) fn close(&mut self, out: &mut [u8]) -> Result<usize, Error> {
        self.seal_message(ContentType::Alert, out, &[1, CLOSE_NOTIFY])
    }

    /// Says why the connection ends here.
    pub(super) fn alert(&mut self, alert: AlertDescription, out: &mut [u8]) -> Result<usize, Error> {
        self.seal_message(ContentType::Alert, out, &[2, alert.into()])
    }

    fn seal_message(&mut self, kind: ContentType, out: &mut [u8], message: &[u8]) -> Result<usize, Error> {
        self.seal_as(kind, out, |content| {
            content[..message.len()].copy_from_slice(message);
            message.len()
        })
    }

    fn seal_as(
        &mut self,
        kind: ContentType,
        out: &mut [u8],
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize, Error> {
        let (head, body) = out.split_at_mut(HEAD);
        let most = body.len().saturating_sub(TAIL).min(CONTENT);
        let len = fill(&mut body[..most]);
        body[len] = kind.into();
        let [high, low] = ((len + TAIL) as u16).to_be_bytes();
        head.copy_from_slice(&[ContentType::ApplicationData.into(), 3, 3, high, low]);
        let (inner, tag) = body[..len + TAIL].split_at_mut(len + 1);
        let (key, nonce) = self.keys.for_next_record()?;
        let made = key.seal_in_place_separate_tag(nonce, Aad::from(&*head), inner);
        tag.copy_from_slice(made.map_err(|_| Error::EncryptError)?.as_ref());
        Ok(HEAD + len + TAIL)
    }
}

/// Alert for the peer about a failure.
pub(super) fn alert_for(error: &Error) -> Option<AlertDescription> {
    match error {
        Error::AlertReceived(_) => None,
        Error::DecryptError => Some(AlertDescription::BadRecordMac),
        Error::InvalidMessage(_) | Error::PeerSentOversizedRecord => Some(AlertDescription::RecordOverflow),
        Error::InappropriateMessage { .. } | Error::PeerMisbehaved(_) => {
            Some(AlertDescription::UnexpectedMessage)
        }
        _ => Some(AlertDescription::InternalError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::keys::Suite;
    use rustls::CipherSuite;

    const SUITES: [CipherSuite; 3] = [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS13_AES_256_GCM_SHA384,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ];

    fn pair(suite: CipherSuite) -> (Sealing, Opening) {
        let suite = Suite::new(suite).unwrap();
        let keys = || Keys::new(suite, &[9; 48]).unwrap();
        (Sealing::new(keys()), Opening::new(keys()))
    }

    fn content(len: usize) -> Vec<u8> {
        (0..len).map(|n| (n * 31 % 251) as u8).collect()
    }

    fn seal(sealing: &mut Sealing, content: &[u8]) -> Vec<u8> {
        let mut out = vec![0; RECORD];
        let len = sealing.seal(&mut out, |space| {
            space[..content.len()].copy_from_slice(content);
            content.len()
        });
        out.truncate(len.unwrap());
        out
    }

    /// Seals anything as a record, also what this end never sends.
    fn seal_inner(keys: &mut Keys, inner: &[u8]) -> Vec<u8> {
        let [high, low] = ((inner.len() + TAG) as u16).to_be_bytes();
        let head = [0x17, 3, 3, high, low];
        let (key, nonce) = keys.for_next_record().unwrap();
        let mut body = inner.to_vec();
        key.seal_in_place_append_tag(nonce, Aad::from(head), &mut body).unwrap();
        [&head[..], &body].concat()
    }

    fn open(opening: &mut Opening, record: &[u8]) -> Result<OpenedRecord, Error> {
        opening.open(&mut record.to_vec(), 0..record.len(), 0)
    }

    #[test]
    fn content_moves_behind_what_lies_before_it() {
        for suite in SUITES {
            let (mut sealing, mut opening) = pair(suite);
            let lens = [1, 15, 16, 17, 1000, CONTENT, CONTENT - 1, 2];
            let records: Vec<Vec<u8>> = lens.iter().map(|&len| seal(&mut sealing, &content(len))).collect();
            let mut memory = [&[0xee; 40][..], &records.concat()].concat();
            let (mut to, mut at) = (7, 40);
            for len in lens {
                let record = at..at + record_len(&memory[at..]).unwrap().unwrap();
                assert_eq!(
                    opening.open(&mut memory, record.clone(), to).unwrap(),
                    OpenedRecord::Content(len)
                );
                assert_eq!(memory[to..to + len], content(len), "{suite:?}, {len} bytes");
                (to, at) = (to + len, record.end);
            }
            assert_eq!((memory[..7].to_vec(), at), (vec![0xee; 7], memory.len()));
        }
    }

    #[test]
    fn whatever_is_changed_in_a_record_or_their_order_is_found() {
        let (mut sealing, mut opening) = pair(SUITES[0]);
        let record = seal(&mut sealing, b"content");
        for at in 0..record.len() {
            let mut changed = record.clone();
            changed[at] ^= 1;
            let (_, mut opening) = pair(SUITES[0]);
            assert_eq!(open(&mut opening, &changed), Err(Error::DecryptError), "byte {at}");
        }
        let (_, mut late) = pair(SUITES[0]);
        let second = seal(&mut sealing, b"content");
        assert_eq!(open(&mut late, &second), Err(Error::DecryptError), "the first is missing");
        assert_eq!(open(&mut opening, &record), Ok(OpenedRecord::Content(7)));
        assert_eq!(open(&mut opening, &record), Err(Error::DecryptError), "it comes again");
    }

    #[test]
    fn records_too_short_for_a_tag_are_refused() {
        for len in 0..=TAG as u8 {
            let record = [&[0x17, 3, 3, 0, len][..], &vec![0; len.into()]].concat();
            assert!(open(&mut pair(SUITES[0]).1, &record).is_err(), "{len}");
        }
    }

    #[test]
    fn heads_are_judged_before_what_follows_is_waited_for() {
        assert_eq!(record_len(&[0x17, 3, 3, 0]), Ok(None));
        assert_eq!(record_len(&[0x17, 3, 3, 0x41, 0]), Ok(Some(HEAD + LONGEST)));
        assert!(record_len(&[0x17, 3, 3, 0x41, 1]).is_err(), "too long");
        assert!(record_len(&[0x15, 3, 3, 0, 2]).is_err(), "an alert in clear");
        assert!(record_len(b"GET /").is_err());
    }

    #[test]
    fn padding_and_what_is_no_content() {
        let suite = Suite::new(SUITES[0]).unwrap();
        let table: &[(&str, Vec<u8>, Option<OpenedRecord>)] = &[
            ("padded", b"abc\x17\0\0\0".to_vec(), Some(OpenedRecord::Content(3))),
            ("padded and empty", b"\x17\0\0".to_vec(), Some(OpenedRecord::Content(0))),
            ("content that ends in zeros", b"\0\0\x17".to_vec(), Some(OpenedRecord::Content(2))),
            ("nothing but padding", vec![0; 100], None),
            ("too much content", [&content(CONTENT + 1)[..], &[0x17]].concat(), None),
            ("goodbye", b"\x01\0\x15".to_vec(), Some(OpenedRecord::Closed)),
            ("alert", b"\x02\x14\x15".to_vec(), None),
            ("half an alert", b"\x02\x15".to_vec(), None),
            ("key update", b"\x18\0\0\x01\0\x16".to_vec(), Some(OpenedRecord::KeyUpdate { answer: false })),
            (
                "key update, asking",
                b"\x18\0\0\x01\x01\x16".to_vec(),
                Some(OpenedRecord::KeyUpdate { answer: true }),
            ),
            ("key update, odd", b"\x18\0\0\x01\x02\x16".to_vec(), None),
            ("key update and more", b"\x18\0\0\x01\0\x18\0\0\x01\0\x16".to_vec(), None),
            ("ticket", b"\x04\0\0\x01\0\x16".to_vec(), None),
            ("unknown type", b"abc\x63".to_vec(), None),
        ];
        for (name, inner, wanted) in table {
            let mut keys = Keys::new(suite, &[9; 48]).unwrap();
            let found = open(&mut pair(SUITES[0]).1, &seal_inner(&mut keys, inner));
            assert_eq!(found.ok(), *wanted, "{name}");
        }
    }

    #[test]
    fn after_an_update_the_keys_are_others_at_both_ends() {
        for suite in SUITES {
            let (mut sealing, mut opening) = pair(suite);
            let mut out = vec![0; RECORD];
            for _ in 0..3 {
                let record = seal(&mut sealing, b"content");
                assert_eq!(open(&mut opening, &record), Ok(OpenedRecord::Content(7)));
                let len = sealing.update(&mut out).unwrap();
                assert_eq!(open(&mut opening, &out[..len]), Ok(OpenedRecord::KeyUpdate { answer: false }));
            }
            let record = seal(&mut sealing, b"content");
            assert!(open(&mut pair(suite).1, &record).is_err(), "the first keys open nothing any more");
            assert_eq!(open(&mut opening, &record), Ok(OpenedRecord::Content(7)));
        }
    }

    #[test]
    fn a_flood_of_records_without_content_ends_the_connection() {
        let (mut sealing, mut opening) = pair(SUITES[0]);
        for _ in 0..IDLE_RECORDS {
            assert_eq!(open(&mut opening, &seal(&mut sealing, b"")), Ok(OpenedRecord::Content(0)));
        }
        assert_eq!(open(&mut opening, &seal(&mut sealing, b"x")), Ok(OpenedRecord::Content(1)));
        for _ in 0..IDLE_RECORDS {
            open(&mut opening, &seal(&mut sealing, b"")).unwrap();
        }
        assert!(open(&mut opening, &seal(&mut sealing, b"")).is_err());
    }
}
