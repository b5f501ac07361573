//! A small object in its ticket: its bytes, and what a service would say of it.

use crate::Oid;
use crate::codec::{DecodeError, Reader, Writer, invalid};
use crate::tree::{MAX_MODE, MAX_NAME, NANOS, Time};

/// The most bytes of content in a ticket. With a name and a few hints the text is then about 1200
/// characters: still a line that terminals, chats and mails take.
pub const MAX_ENCLOSED: usize = 512;

/// An object that its ticket holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Enclosed {
    /// One path component, or empty. Nothing says that it is safe to use.
    pub name: Vec<u8>,
    /// Permission bits, if they are known.
    pub mode: Option<u32>,
    /// Time of last modification, if it is known.
    pub modified: Option<Time>,
    /// All bytes of the object, at most [`MAX_ENCLOSED`]. Reading a ticket checks that they are those
    /// that its OID names.
    pub content: Vec<u8>,
}

impl Enclosed {
    /// True if a ticket can hold this of the object that `oid` names.
    pub fn fits(&self, oid: &Oid) -> bool {
        let mut writer = Writer::new();
        self.encode(&mut writer);
        let bytes = writer.into_bytes();
        let mut reader = Reader::new(&bytes);
        Self::decode(&mut reader, oid).is_ok()
    }

    pub(super) fn encode(&self, writer: &mut Writer) {
        encode_file_facts(writer, (&self.name, self.mode, self.modified));
        writer.bytes(&self.content);
    }

    pub(super) fn decode(reader: &mut Reader<'_>, oid: &Oid) -> Result<Self, DecodeError> {
        let (name, mode, modified) = decode_file_facts(reader)?;
        let content = reader.bytes("content", MAX_ENCLOSED)?.to_vec();
        if Oid::of(&content) != *oid {
            return Err(invalid("content", "is not what the ticket's object id names"));
        }
        Ok(Self { name, mode, modified, content })
    }
}

/// Name, permission bits and time of a file.
pub(crate) type FileFacts = (Vec<u8>, Option<u32>, Option<Time>);

/// Appends name, permission bits and time of a file, as tickets and published files hold them.
pub(crate) fn encode_file_facts(
    writer: &mut Writer,
    (name, mode, modified): (&[u8], Option<u32>, Option<Time>),
) {
    writer.bytes(name);
    writer.varint(mode.map_or(0, |mode| u64::from(mode) + 1));
    match modified {
        None => writer.u8(0),
        Some(Time { seconds, nanos }) => writer.u8(1).signed(seconds).varint(nanos.into()),
    };
}

/// Reads what [`encode_file_facts`] wrote.
pub(crate) fn decode_file_facts(reader: &mut Reader<'_>) -> Result<FileFacts, DecodeError> {
    let name = reader.bytes("name", MAX_NAME)?.to_vec();
    let mode = reader.bounded("mode", u64::from(MAX_MODE) + 1)?.checked_sub(1).map(|mode| mode as u32);
    let modified = match reader.u8("modified")? {
        0 => None,
        1 => {
            let seconds = reader.signed("seconds")?;
            let nanos = reader.bounded("nanoseconds", u64::from(NANOS) - 1)? as u32;
            Some(Time { seconds, nanos })
        }
        _ => return Err(invalid("modified", "is neither known nor unknown")),
    };
    Ok((name, mode, modified))
}

#[cfg(test)]
mod tests {
    use super::super::{Secret, Terms, Ticket};
    use super::*;
    use crate::NodeId;

    fn ticket(content: &[u8]) -> Ticket {
        let enclosed = Enclosed {
            name: b"note.txt".to_vec(),
            mode: Some(0o640),
            modified: Some(Time { seconds: -1, nanos: 999_999_999 }),
            content: content.to_vec(),
        };
        let (node, secret) = (NodeId([3; 32]), Secret([4; 16]));
        let (hints, terms) = (Vec::new(), Terms::default());
        Ticket { oid: Oid::of(content), node, secret, hints, terms, enclosed: Some(enclosed) }
    }

    #[test]
    fn what_is_enclosed_comes_back() {
        for content in [&b""[..], b"hello", &[0xff; MAX_ENCLOSED]] {
            let ticket = ticket(content);
            assert_eq!(ticket.to_string().parse(), Ok(ticket));
        }
        let mut bare = ticket(b"x");
        bare.enclosed = Some(Enclosed { content: b"x".to_vec(), ..Enclosed::default() });
        assert_eq!(bare.to_string().parse(), Ok(bare));
    }

    #[test]
    fn the_longest_is_still_a_line_to_paste() {
        let mut longest = ticket(&[7; MAX_ENCLOSED]);
        longest.enclosed.as_mut().unwrap().name = vec![b'n'; MAX_NAME];
        assert!(longest.to_string().len() < 1500, "{}", longest.to_string().len());
    }

    #[test]
    fn content_that_the_oid_does_not_name_is_refused() {
        let mut lying = ticket(b"the truth");
        lying.enclosed.as_mut().unwrap().content = b"something else".to_vec();
        let refused = lying.to_string().parse::<Ticket>().unwrap_err();
        assert_eq!(refused, invalid("content", "is not what the ticket's object id names"));
        lying.oid = Oid::Live([7; 32]);
        assert!(lying.to_string().parse::<Ticket>().is_err(), "nothing vouches for a live object's bytes");
    }

    #[test]
    fn what_is_over_a_limit_is_refused() {
        let changes: [fn(&mut Enclosed); 3] = [
            |enclosed| enclosed.name = vec![b'n'; MAX_NAME + 1],
            |enclosed| enclosed.mode = Some(MAX_MODE + 1),
            |enclosed| enclosed.modified = Some(Time { seconds: 0, nanos: NANOS }),
        ];
        for change in changes {
            let mut ticket = ticket(b"x");
            let enclosed = ticket.enclosed.as_mut().unwrap();
            assert!(enclosed.fits(&ticket.oid));
            change(enclosed);
            assert!(!enclosed.fits(&ticket.oid));
            assert!(ticket.to_string().parse::<Ticket>().is_err());
        }
        let large = ticket(&[7; MAX_ENCLOSED + 1]);
        assert!(!large.enclosed.as_ref().unwrap().fits(&large.oid));
        assert!(large.to_string().parse::<Ticket>().is_err());
    }
}
