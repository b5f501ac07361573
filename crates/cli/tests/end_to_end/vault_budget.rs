//! What a small put and the get of it consist of, message by message: `--nocapture` prints the budget.

use std::fmt::Write;
use std::fs;
use std::sync::{Arc, Mutex};

use towpath_link::Identity;
use towpath_vault_protocol::{ClientMessage, ServerMessage};

use crate::environment::Machine;
use crate::lying_server::{Fate, Liar, LyingServer, RawMessage, raw};
use crate::runner::situations;
use crate::trees::{assert_same_bytes, bytes};
use crate::vault::{Vaults, find, put, told};
use crate::vault_attacks::{keys_of, member, state};

situations![a_document_with_fifteen_words_replaced_is_one_short_message];

/// Bytes of the document.
const LENGTH: u64 = 700_000;

/// A message: who said it, its kind, and its bytes.
type Noted = (&'static str, &'static str, usize);

/// Says the truth, and notes who said how much.
#[derive(Clone, Default)]
struct Budget(Arc<Mutex<Vec<Noted>>>);

impl Budget {
    fn note(&self, who: &'static str, what: &'static str, message: &RawMessage) {
        self.0.lock().unwrap().push((who, what, message.1.len()));
    }

    fn of(&self, who: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|(by, ..)| *by == who).map(|(.., len)| len).sum()
    }

    fn table(&self) -> String {
        self.0.lock().unwrap().drain(..).fold(String::new(), |mut table, (who, what, len)| {
            writeln!(table, "{who:<7} {what:<10} {len:>6}").unwrap();
            table
        })
    }
}

impl Liar for Budget {
    fn is_brief(&self) -> bool {
        true
    }

    fn asked(&mut self, message: ClientMessage) -> Fate {
        let what = match &message {
            ClientMessage::Hello(..) => "Hello",
            ClientMessage::Whole { .. } => "Whole",
            ClientMessage::Propose { .. } => "Propose",
            ClientMessage::Block(_) => "Block",
            ClientMessage::Get(_) => "Get",
            ClientMessage::GetUpdate(_) => "Update",
            ClientMessage::Root(_) => "Root",
            _ => "other",
        };
        let message = raw(message.to_frames());
        self.note("client", what, &message);
        Fate::Pass(message)
    }

    fn told(&mut self, message: ServerMessage) -> Option<RawMessage> {
        let what = match &message {
            ServerMessage::Head(_) | ServerMessage::Newer(_) => "Head",
            ServerMessage::Committed(_) => "Committed",
            ServerMessage::Object(_) => "Object",
            ServerMessage::Update(_) => "Update",
            ServerMessage::Root(_) => "Root",
            _ => "other",
        };
        let message = raw(message.to_frames());
        self.note("server", what, &message);
        Some(message)
    }
}

fn through(machine: &Machine, id: &str, liar: &LyingServer) {
    fs::write(state(machine, id).join("server"), &liar.place).unwrap();
}

/// Boundaries of chunks are as random as a vault's key: in one vault of four or so one of them falls to a word that was replaced, and
/// its chunks travel anew.
fn a_document_with_fifteen_words_replaced_is_one_short_message() {
    let mut tried = Vec::new();
    // Fifteen blocks with a patch each, some 100 bytes each, and what an update has in any case.
    while tried.last().is_none_or(|sent| *sent >= 2500) {
        assert!(tried.len() < 6, "{tried:?} bytes");
        tried.push(sent_for_fifteen_words());
    }
}

/// Bytes that a client sends for them in a vault of its own.
fn sent_for_fifteen_words() -> usize {
    let mut document = bytes(1, LENGTH);
    let (vaults, one, two, id) = Vaults::with_two(&document);
    told(&two, &["get", "notes", "-o", "copy"]);
    let key = find(&vaults.env.machine("server").home(""), "node.key");
    let server = Identity::load_or_create(&key).unwrap();
    let liar = LyingServer::new(&server, &vaults.place, member(&keys_of(&one, &id)));
    through(&one, &id, &liar);
    through(&two, &id, &liar);
    let budget = Budget::default();
    liar.lie(budget.clone());
    for place in (0..15).rev() {
        let at = 20_000 + 45_000 * place;
        document.splice(at..at + 8, *b"Springfield");
    }
    fs::write(one.path("notes"), &document).unwrap();
    put(&one, "notes");
    let sent = budget.of("client");
    eprintln!("put of a document with 15 words replaced:\n{}", budget.table());
    told(&two, &["get", "notes", "-o", "copy", "--overwrite"]);
    assert_same_bytes(&one.path("notes"), &two.path("copy"));
    let asked = budget.of("client");
    eprintln!("get of it with the version before:\n{}", budget.table());
    assert!(asked < 100, "nothing but the head and the update: {asked} bytes");
    sent
}
