//! Tickets at the command line, also such as a mail program broke into lines, and what is said of one before it is used.
//!
//! A shell makes words of the lines. The ticket's checksum tells where it ends and other words begin.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use towpath_api::{Event, TicketTerms};
use towpath_content::Ticket;

use crate::output::Output;

const BEGIN: &str = "tow:";

/// The ticket that begins with `first`, and the words behind it that are not part of it. Without a whole ticket all stays as it is.
pub fn of_words(first: &str, others: &[PathBuf]) -> (String, Vec<PathBuf>) {
    let first = whole(first);
    let further = others.iter().map(|path| path.to_str());
    let taken = further_words(&first, further);
    let further = others.iter().take(taken).filter_map(|path| path.to_str());
    (further.fold(first, |ticket, word| ticket + &whole_word(word)), others[taken..].to_vec())
}

/// The same of a list of names, any of which may be a ticket in several words.
pub fn joined(words: Vec<OsString>) -> Vec<OsString> {
    let (mut names, mut rest) = (Vec::new(), &words[..]);
    while let [first, others @ ..] = rest {
        rest = others;
        let Some(text) = first.to_str().map(whole) else {
            names.push(first.clone());
            continue;
        };
        let taken = further_words(&text, others.iter().map(|word| word.to_str()));
        let further = others.iter().take(taken).filter_map(|word| word.to_str());
        names.push(further.fold(text, |ticket, word| ticket + &whole_word(word)).into());
        rest = &others[taken..];
    }
    names
}

/// A ticket without the blanks and line ends in it; anything else as it is.
pub fn whole(text: &str) -> String {
    match text.trim_start().starts_with(BEGIN) {
        true => whole_word(text),
        false => text.to_owned(),
    }
}

fn whole_word(text: &str) -> String {
    text.split_whitespace().collect()
}

/// The number of words behind `first` that make a whole ticket with it.
fn further_words<'a>(first: &str, others: impl Iterator<Item = Option<&'a str>>) -> usize {
    if !first.starts_with(BEGIN) || first.parse::<Ticket>().is_ok() {
        return 0;
    }
    let mut text = first.to_owned();
    for (number, word) in others.enumerate() {
        let Some(word) = word.filter(|_| text.len() <= towpath_content::ticket::MAX_TEXT) else { break };
        text.push_str(&whole_word(word));
        if text.parse::<Ticket>().is_ok() {
            return number + 1;
        }
    }
    0
}

/// Says when the ticket expires, if it does and has not yet.
pub fn tell_end(text: &str, output: &Output) {
    let Ok(terms) = text.parse::<Ticket>().map(|ticket| ticket.terms) else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if terms.expires.is_some() && !terms.is_expired(now) {
        output.event(&Event::Terms(TicketTerms { expires: terms.expires, no_swarm: terms.no_swarm }));
    }
}

#[cfg(test)]
mod tests {
    use towpath_content::ticket::{Secret, Terms};
    use towpath_content::{NodeId, Oid};

    use super::*;

    fn ticket() -> String {
        let (oid, node) = (Oid::of(b"x"), NodeId([3; 32]));
        let (secret, terms) = (Secret([4; 16]), Terms::default());
        Ticket { oid, node, secret, hints: Vec::new(), terms, enclosed: None }.to_string()
    }

    fn words(text: &str, width: usize) -> Vec<String> {
        text.as_bytes().chunks(width).map(|word| String::from_utf8(word.to_vec()).unwrap()).collect()
    }

    #[test]
    fn a_ticket_in_several_words_ends_where_it_is_whole() {
        let (ticket, whole) = (ticket(), ["aaaa", "b"].map(PathBuf::from));
        for width in [20, 72, 1000] {
            let broken = words(&ticket, width);
            let further: Vec<_> = broken[1..].iter().map(PathBuf::from).chain(whole.clone()).collect();
            assert_eq!(of_words(&broken[0], &further), (ticket.clone(), whole.to_vec()), "{width}");
        }
        let lines = words(&ticket, 50).join("\n ");
        assert_eq!(of_words(&lines, &whole), (ticket, whole.to_vec()));
    }

    #[test]
    fn what_is_no_whole_ticket_stays_as_it_is() {
        let paths = ["a b", "cc"].map(PathBuf::from);
        let cut = ticket()[..60].to_owned();
        for first in ["tow:abc", &cut, "7-otter-lagoon", "-", "https://example.org/a b", "blake3:0 1"] {
            assert_eq!(of_words(first, &paths), (first.to_owned(), paths.to_vec()), "{first}");
        }
    }

    #[test]
    fn several_names_are_told_apart() {
        let ticket = ticket();
        let broken = words(&ticket, 40);
        let names = ["/a path", "deadbeef"].map(str::to_owned);
        let all = names[..1].iter().chain(&broken).chain(&names[1..]).chain([&ticket]).chain(&broken);
        let found = joined(all.map(OsString::from).collect());
        let expected = [&names[0], &ticket, &names[1], &ticket, &ticket].map(OsString::from);
        assert_eq!(found, expected);
    }
}
