//! Questions for entries, as a connection names them, and their state while they are answered.

use towpath_content::delta::exchange::NextSignature;
use towpath_transfer::offer::EntryQuery;

use super::wire::Body;

/// Names a question on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryTag {
    /// Number of the `Get`.
    pub request: u32,
    /// Index of the want.
    pub want: u32,
}

/// Question of the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryAsk {
    /// Its name in answers.
    pub tag: EntryTag,
    /// The question.
    pub query: EntryQuery,
}

/// State of the questions of one connection that are being answered.
pub(super) trait AskStates: Send {
    /// True if somebody waits for an answer to a question.
    fn awaits(&self, tag: EntryTag) -> bool;

    /// True if somebody waits for more of a request.
    fn is_under_way(&self, request: u32) -> bool;

    /// A question has been answered, which changes nothing if it was before. Returns the message that says so of its request, if that
    /// was the last one.
    fn end_ask(&mut self, tag: EntryTag) -> Option<Body>;

    /// So many more signatures of an entry's base are about to be requested.
    fn expect_signatures(&mut self, tag: EntryTag, more: u64);

    /// The next signature of an entry's base, if it has come.
    fn take_signature(&mut self, tag: EntryTag) -> Option<NextSignature>;
}
