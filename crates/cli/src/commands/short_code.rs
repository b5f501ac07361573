//! Short codes at the command line: what `tow share --code` shows and asks, and what `tow get CODE` does before it gets.

use std::future::pending;
use std::process::ExitCode;
use std::sync::OnceLock;

use clap::Args;
use serde::Serialize;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use towpath_api::{ApiError, ErrorKind};
use towpath_config::Home;
use towpath_standalone::served_tickets;
use towpath_standalone::short_codes::{self, Fingerprint, HostEvent, HostWish, MAX_WORDS, VoidCause, WORDS};

use super::Context;
use crate::output::Output;

/// How a ticket is handed over.
#[derive(Debug, Clone, Copy, Args)]
pub struct CodeFlags {
    /// Print a short code in place of the ticket, to be said aloud: 'tow get CODE' on the other machine, once. On one network
    /// that is all; between networks both sides need a rendezvous server
    #[arg(long)]
    code: bool,
    /// Words of the code, from 2 to 8
    #[arg(long, value_name = "NUMBER", requires = "code", value_parser = parse_words, default_value_t = WORDS, hide_default_value = true)]
    words: usize,
    /// Both ends show four words, and the ticket goes when you say that they are the same
    #[arg(long, requires = "code")]
    verify: bool,
    /// Draw it on standard error, too, as a QR picture for a telephone's camera: the ticket, or with --code the command of the other
    /// end
    #[arg(long)]
    qr: bool,
}

fn parse_words(text: &str) -> Result<usize, String> {
    let words = text.parse().ok().filter(|words| (WORDS..=MAX_WORDS).contains(words));
    words.ok_or_else(|| format!("write a number from {WORDS} to {MAX_WORDS}"))
}

/// A line of `--json`.
#[derive(Debug, Serialize)]
struct CodeEvent<'a> {
    event: &'static str,
    code: &'a str,
    /// The code before it is void.
    renewed: bool,
}

/// Another one: a wrong code, and the one that is shown stays.
#[derive(Debug, Serialize)]
struct GuessEvent {
    event: &'static str,
    wrong: u32,
}

/// Another one: words that people compare, at either end.
#[derive(Debug, Serialize)]
struct CompareEvent {
    event: &'static str,
    words: String,
}

/// Another one: nobody comes by one of the places to wait at.
#[derive(Debug, Serialize)]
struct TroubleEvent {
    event: &'static str,
    message: String,
}

/// Another one: the ticket was handed over.
#[derive(Debug, Serialize)]
struct HandedOverEvent {
    event: &'static str,
}

/// A ticket that waits for whoever has the code.
pub struct WaitingCode {
    draws: bool,
    /// What is missing for others than those on this network; told once.
    needed_elsewhere: Option<&'static str>,
    home: Home,
    ticket: String,
    handing: Option<JoinHandle<Result<(), ApiError>>>,
    /// How long it is served, in words.
    served_until: String,
    events: mpsc::Receiver<HostEvent>,
}

impl CodeFlags {
    /// Draws the ticket, if that was asked for.
    pub fn draw(self, ticket: &str, output: &Output) {
        if self.qr {
            output.picture(ticket);
        }
    }

    /// True if there is to be a code.
    pub const fn is_on(self) -> bool {
        self.code
    }

    /// Hands `ticket` over, if it is to be by a code; `served_until` says in words how long it is served.
    pub fn hand_over(
        self,
        context: &Context,
        ticket: &str,
        served_until: &str,
    ) -> Result<Option<WaitingCode>, ApiError> {
        if !self.code {
            return Ok(None);
        }
        let (config, (told, events)) = (context.configured()?, mpsc::channel(1));
        let wish = HostWish { ticket: ticket.to_owned(), words: self.words, is_verified: self.verify };
        let needed_elsewhere = short_codes::needed_elsewhere(&config);
        let handing = tokio::spawn(async move { short_codes::hand_out(&config, &wish, &told).await });
        let (home, ticket, served_until) = (context.home.clone(), ticket.to_owned(), served_until.to_owned());
        let (draws, handing) = (self.qr, Some(handing));
        Ok(Some(WaitingCode { draws, needed_elsewhere, home, ticket, handing, served_until, events }))
    }
}

impl WaitingCode {
    /// Shows and asks what there is to be shown and asked. Returns when that is done, to be called again; never after the end.
    pub async fn attend(&mut self, output: &Output) -> Result<(), ApiError> {
        let Some(handing) = &mut self.handing else { return pending().await };
        tokio::select! {
            biased;
            Some(event) = self.events.recv() => {
                let mut needed = None;
                if let HostEvent::Code { code, .. } = &event {
                    served_tickets::note_code(&self.home, code, &self.ticket);
                    needed = self.needed_elsewhere.take();
                }
                show(event, self.draws, output).await;
                needed.iter().for_each(|needed| output.print(&format!("tow: {needed}")));
            }
            ended = handing => {
                self.handing = None;
                let ended = ended.map_err(|error| ApiError::new(ErrorKind::Failed, error.to_string()));
                ended.flatten()?;
                match output.is_json() {
                    true => output.object(&HandedOverEvent { event: "handed_over" }),
                    false => {
                        let until = &self.served_until;
                        output.print(&format!(
                            "tow: the ticket was handed over; the code is spent. Serving until {until}"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

impl WaitingCode {
    /// Attends until the ticket was handed over.
    pub async fn attend_until_spent(mut self, output: &Output) -> Result<(), ApiError> {
        while self.handing.is_some() {
            self.attend(output).await?;
        }
        Ok(())
    }
}

async fn show(event: HostEvent, draws: bool, output: &Output) {
    match event {
        HostEvent::Code { code, after, is_verified } => {
            if let Some(cause) = after {
                output.print(&format!("tow: {}; that one is void, this one is new", void(cause)));
            }
            show_code(&code, after.is_some(), draws, output);
            if is_verified {
                output.print("tow: the other end will show four words to compare");
            }
        }
        HostEvent::Guess(wrong) => match output.is_json() {
            true => output.object(&GuessEvent { event: "wrong_code", wrong }),
            false => {
                output.print(&format!("tow: somebody gave a wrong code, {wrong} by now; this one stays"))
            }
        },
        HostEvent::Trouble(message) => match output.is_json() {
            true => output.object(&TroubleEvent { event: "trouble", message }),
            false => output.print(&format!("tow: nobody comes by {message}")),
        },
        HostEvent::Compare { fingerprint, answer } => {
            show_words(&fingerprint.to_string(), output);
            let mut answer = answer;
            let is_given = tokio::select! {
                is_same = asked("tow: is it the same there? [y/N]", output) => answer.send(is_same).is_ok(),
                () = answer.closed() => false,
            };
            if !is_given {
                output.complain("tow: the other end left before that; the code stays as it is");
            }
        }
    }
}

const fn void(cause: VoidCause) -> &'static str {
    match cause {
        VoidCause::Guess => "somebody gave a wrong code",
        VoidCause::Differs => "nobody said that the words are the same, so others may know the code",
    }
}

fn show_code(code: &str, is_renewed: bool, draws: bool, output: &Output) {
    match output.is_json() {
        true => output.object(&CodeEvent { event: "code", code, renewed: is_renewed }),
        false => output.line(code),
    }
    let command = format!("tow get {code}");
    output.print(&format!("tow: on the other machine: {command}"));
    if draws {
        output.picture(&command);
    }
}

/// Shows what people compare, also to those who want to see little: without it there is nothing to answer.
fn show_words(words: &str, output: &Output) {
    match output.is_json() {
        true => output.object(&CompareEvent { event: "compare", words: words.to_owned() }),
        false => output.complain(&format!("tow: the other end shows: {words}")),
    }
}

/// Asks the person, or with `--json` whoever reads that; where standard input ends the answer is no.
async fn asked(question: &str, output: &Output) -> bool {
    if !output.is_json() {
        output.complain(question);
    }
    let mut lines = LINES.get_or_init(|| Mutex::new(lines_of_input())).lock().await;
    // What was typed before is no answer to this.
    while lines.try_recv().is_ok() {}
    let line = lines.recv().await.unwrap_or_default();
    ["y", "yes"].contains(&line.trim().to_lowercase().as_str())
}

/// Lines of standard input. They are read from the first question on, and by nobody else: a question may be over before its answer.
static LINES: OnceLock<Mutex<mpsc::Receiver<String>>> = OnceLock::new();

fn lines_of_input() -> mpsc::Receiver<String> {
    let (told, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| told.blocking_send(line)).ok()
    });
    lines
}

/// The ticket that a code buys; `None` if `text` is no code.
pub async fn ticket_of(context: &Context, text: &str) -> Result<Option<String>, ApiError> {
    if !short_codes::is_code(text) {
        return Ok(None);
    }
    let (config, (fingerprints, mut shown)) = (context.configured()?, mpsc::channel(1));
    let show = |fingerprint: Fingerprint| {
        context.output.print("tow: the same words on both ends say that nobody is in between");
        show_words(&fingerprint.to_string(), &context.output);
    };
    let mut buying = std::pin::pin!(short_codes::ticket_of(&context.home, &config, text, &fingerprints));
    loop {
        tokio::select! {
            Some(fingerprint) = shown.recv() => show(fingerprint),
            ticket = &mut buying => {
                // What people compare is shown, however quickly the other end has decided.
                shown.try_recv().into_iter().for_each(show);
                return ticket.map(Some);
            }
        }
    }
}

/// After a get by a code: nobody needs its ticket any more, if all came.
pub fn done(context: &Context, text: &str, status: ExitCode) {
    if status == ExitCode::SUCCESS && short_codes::is_code(text) {
        short_codes::forget(&context.home, text);
    }
}
