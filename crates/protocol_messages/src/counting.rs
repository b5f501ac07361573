//! Parts of a peer's message, counted before it is decoded: an empty part takes two bytes of the message
//! and some two hundred of memory.

/// True if a Protocol Buffers message has at most `most` parts at `path`, the numbers of nested fields
/// whose last one is repeated. Bytes that are no message, or of a wire type that nobody here writes, have
/// more than any number: a decoder might skip what this can't.
pub fn has_at_most(message: &[u8], path: &[u32], most: usize) -> bool {
    count(message, path, most) <= most
}

/// The top of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Top {
    /// One part with a number that was looked for.
    One(u32),
    /// None.
    Nothing,
    /// More than one.
    Several,
    /// The bytes are no message.
    Garbage,
}

/// The part at the top of a Protocol Buffers message among those with numbers up to `most`.
/// Others are passed over, as a decoder does.
pub fn top(message: &[u8], most: u32) -> Top {
    let (mut rest, mut found) = (message, Top::Nothing);
    while !rest.is_empty() {
        let Some(field) = take_field(&mut rest) else { return Top::Garbage };
        let number = u32::try_from(field.number).ok().filter(|number| (1..=most).contains(number));
        found = match (found, number) {
            (found, None) => found,
            (Top::Nothing, Some(number)) => Top::One(number),
            _ => return Top::Several,
        };
    }
    found
}

/// The number of parts, or one above `most` as soon as there are more.
fn count(message: &[u8], path: &[u32], most: usize) -> usize {
    let Some((number, below)) = path.split_first() else { return 1 };
    let (mut rest, mut counted) = (message, 0);
    while counted <= most && !rest.is_empty() {
        let Some(field) = take_field(&mut rest) else { return usize::MAX };
        if field.number == u64::from(*number)
            && let Some(body) = field.body
        {
            counted = counted.saturating_add(count(body, below, most));
        }
    }
    counted
}

struct CountedField<'a> {
    number: u64,
    /// Of a string, bytes or a message.
    body: Option<&'a [u8]>,
}

/// The field at the front.
fn take_field<'a>(rest: &mut &'a [u8]) -> Option<CountedField<'a>> {
    let key = take_varint(rest)?;
    let body = match key & 7 {
        0 => take_varint(rest).map(|_| None)?,
        1 => take(rest, 8).map(|_| None)?,
        2 => {
            let len = usize::try_from(take_varint(rest)?).ok()?;
            Some(take(rest, len)?)
        }
        5 => take(rest, 4).map(|_| None)?,
        _ => return None,
    };
    Some(CountedField { number: key >> 3, body })
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for at in 0..10 {
        let byte = *take(rest, 1)?.first()?;
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Body, Get, WireWant};

    const WANTS: [u32; 2] = [8, 3];

    fn get(wants: usize) -> Bytes {
        let root = Bytes::from(vec![7; 33]);
        let wants = vec![WireWant::default(); wants];
        Body::Get(Get { request: 300, root, wants, urgency: -3, ..Get::default() }).to_frame()
    }

    #[test]
    fn parts_are_counted_without_being_decoded() {
        for wants in [0, 1, 1000] {
            let message = get(wants);
            assert!(has_at_most(&message, &WANTS, wants), "{wants}");
            assert!(wants == 0 || !has_at_most(&message, &WANTS, wants - 1), "{wants}");
            assert!(has_at_most(&message, &[9, 3], 0), "another message");
            assert!(has_at_most(&message, &[8, 4], 0), "another field");
        }
    }

    #[test]
    fn parts_are_counted_over_several_messages_in_one() {
        // The last one of a kind counts when it is decoded, but all are merged.
        let twice = [get(3), get(4)].concat();
        assert!(has_at_most(&twice, &WANTS, 7) && !has_at_most(&twice, &WANTS, 6));
    }

    #[test]
    fn one_part_is_told_from_none_and_several() {
        assert_eq!(top(&get(3), 20), Top::One(8));
        assert_eq!(top(&get(3), 7), Top::Nothing, "not among those that are looked for");
        assert_eq!(top(b"", 20), Top::Nothing);
        assert_eq!(top(&[get(1), get(1)].concat(), 20), Top::Several);
        // Field 99, varint 1, is passed over.
        assert_eq!(top(&[&get(1)[..], &[0x98, 0x06, 0x01]].concat(), 20), Top::One(8));
        assert_eq!(top(&[0x42, 0x05, 1], 20), Top::Garbage);
    }

    #[test]
    fn what_is_no_message_has_too_many() {
        assert!(has_at_most(b"", &WANTS, 0));
        // Cut short, a number without end, a group (which a decoder skips), a part that is cut short.
        for bytes in [&[0x42][..], &[0x42, 0x05, 1], &[0xff; 12], &[0x4b, 0x4c], &[0x42, 0x02, 0x1a, 0xff]] {
            assert!(!has_at_most(bytes, &WANTS, 100), "{bytes:?}");
        }
    }
}
