//! Output of the program: standard output is data, standard error is messages.
//!
//! With `--json` each event is one JSON object a line on standard output
//! (`docs/formats/local-api.md`). On a terminal a line on standard error shows how far a transfer is
//! (`bar`), or who fetches what is served (`receivers`); it is there once there is something to show. Exit status: 0 done, 1 failed, 2 usage, 3 partly done,
//! 130 interrupted with the partial result kept; `tow sync` has rsync's (`copy_output`).

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use towpath_api::copy::Dropped;
use towpath_api::{
    Announced, ApiError, EntryKind, ErrorKind, Event, Fetch, Progress, PutReply, Summary, UpdateCounts,
};
use towpath_service::{display_name, display_text};
use towpath_standalone::pictures::QrPicture;

use crate::bar::{self, RateMeter, from_network};
use crate::listing;
use crate::receivers::Receivers;

/// Exit status for a command line that can't be understood.
pub const USAGE: u8 = 2;
/// Exit status when some files failed.
pub const PARTLY: u8 = 3;
/// Exit status after ^C.
pub const INTERRUPTED: u8 = 130;
/// The same of `tow sync`, as rsync has it.
pub const SYNC_INTERRUPTED: u8 = 20;

/// Columns of a terminal that does not tell.
const USUAL_COLUMNS: usize = 80;
/// What is drawn in half blocks has to be light on dark.
const WHITE_ON_BLACK: &str = "\x1b[38;5;231;48;5;16m";
const AS_BEFORE: &str = "\x1b[0m";

/// Sink of events.
pub struct Output {
    json: bool,
    quiet: bool,
    bar: ProgressBar,
    /// Standard error is a terminal, and whoever looks at it wants to see how far it is.
    shows_bar: AtomicBool,
    meter: Mutex<RateMeter>,
    receivers: Mutex<Receivers>,
    told_ticket: AtomicBool,
    /// Standard output carries an object's bytes; events go to standard error.
    stdout_is_data: AtomicBool,
}

impl Output {
    /// Speaks JSON, or to a person; `quiet` leaves out everything but results and errors.
    pub fn new(json: bool, quiet: bool) -> Self {
        let shows_bar = AtomicBool::new(std::io::stderr().is_terminal() && !json && !quiet);
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        let (told_ticket, stdout_is_data) = (AtomicBool::new(false), AtomicBool::new(false));
        let (meter, receivers) = (Mutex::default(), Mutex::default());
        Self { json, quiet, bar, shows_bar, meter, receivers, told_ticket, stdout_is_data }
    }

    /// True if `--json` was given.
    pub const fn is_json(&self) -> bool {
        self.json
    }

    /// From now on standard output carries an object's bytes: events go to standard error.
    pub fn data_goes_to_stdout(&self) {
        self.stdout_is_data.store(true, Ordering::Relaxed);
    }

    /// One line of data.
    pub fn line(&self, text: &str) {
        self.bar.suspend(|| {
            if self.stdout_is_data.load(Ordering::Relaxed) {
                let _ = writeln!(std::io::stderr(), "{text}");
                return;
            }
            let mut out = std::io::stdout().lock();
            // A reader that went away (`| head -1`) has what it wanted.
            let _ = writeln!(out, "{text}").and_then(|()| out.flush());
        });
    }

    /// One JSON object of data.
    pub fn object<T: serde::Serialize>(&self, object: &T) {
        if let Ok(text) = serde_json::to_string(object) {
            self.line(&text);
        }
    }

    /// One line of talk.
    pub fn print(&self, text: &str) {
        if !self.quiet && !self.json {
            self.complain(text);
        }
    }

    /// One line of a copy's account of itself, which `-q` silences.
    pub fn result_line(&self, text: &str) {
        if !self.quiet {
            self.line(text);
        }
    }

    /// No bar, on a terminal either.
    pub fn hide_bar(&self) {
        self.shows_bar.store(false, Ordering::Relaxed);
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
    }

    /// Takes the bar away at the end.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// One line of talk that `-q` does not silence.
    pub fn complain(&self, text: &str) {
        // Some of it may be the other side's words.
        let text = text.split('\n').map(display_text).collect::<Vec<_>>().join("\n");
        self.bar.suspend(|| {
            let _ = writeln!(std::io::stderr(), "{text}");
        });
    }

    /// Draws a QR picture of `text` on standard error, or says why there is none. In black and white, whatever colours the terminal has.
    pub fn picture(&self, text: &str) {
        let stderr = std::io::stderr();
        let size = rustix::termios::tcgetwinsize(&stderr).ok().filter(|size| size.ws_col > 0);
        let picture = match QrPicture::new(text, size.map_or(USUAL_COLUMNS, |size| size.ws_col.into())) {
            Ok(picture) => picture,
            Err(error) => {
                return self.complain(&format!("tow: {error}\n     {}", error.hint.as_deref().unwrap_or("")));
            }
        };
        let (begin, end) = if stderr.is_terminal() { (WHITE_ON_BLACK, AS_BEFORE) } else { ("", "") };
        self.bar.suspend(|| {
            for line in picture.lines() {
                let _ = writeln!(std::io::stderr(), "{begin}{line}{end}");
            }
        });
    }

    /// Shows an event.
    pub fn event(&self, event: &Event) {
        if self.json {
            return self.object(event);
        }
        match event {
            Event::Ticket(reply) => self.ticket(reply),
            Event::Transfer(progress) => self.progress(progress),
            // Something that was asked for as a whole is not done.
            Event::FileFailed { path, error } if path.is_empty() => self.complain(&format!("tow: {error}")),
            Event::FileFailed { path, error } => {
                self.complain(&format!("tow: {}", of_path(&display_text(path), error)));
            }
            Event::EntrySkipped { path, why } => {
                self.complain(&format!("tow: {}", of_path(&display_text(path), why)))
            }
            // ssh asks for a password: that is what is waited for, and the line is its own.
            Event::Waiting { .. } if is_typed_blindly() => {}
            Event::Waiting { what, seconds } => self.print(&waiting(what, *seconds)),
            Event::Receiving(receiving) => self.receiving(receiving),
            Event::Terms(terms) => {
                listing::terms(*terms)
                    .iter()
                    .for_each(|terms| self.print(&format!("tow: the ticket {terms}")));
            }
            Event::Entry(entry) => self.line(&listing::line(entry)),
            // Told by whoever knows which of them are looked at.
            Event::Item { .. } | Event::Deleted { .. } => {}
            Event::Summary(_) | Event::Failed(_) => {}
            Event::Fetch(fetch) => self.fetch(fetch),
            Event::Session { .. } | Event::Alive | Event::Missed { .. } => {}
        }
    }

    /// Shows a ticket, once.
    pub fn ticket(&self, reply: &PutReply) {
        if self.told_ticket.swap(true, Ordering::Relaxed) {
            return;
        }
        match self.json {
            true => self.object(&Event::Ticket(reply.clone())),
            false => self.line(&reply.ticket),
        }
    }

    /// Says what is about to be written, to who looks on: the sender may have chosen the name. The last line tells a log.
    fn receiving(&self, receiving: &Announced) {
        if self.shows_bar.load(Ordering::Relaxed) {
            self.print(&about_to_receive(receiving));
        }
    }

    fn progress(&self, progress: &Progress) {
        let rate = lock(&self.meter).rate(Instant::now(), from_network(progress));
        self.draw(|width| bar::line(progress, rate, width));
    }

    /// Prints who fetches what, at the moment and at each end.
    fn fetch(&self, fetch: &Fetch) {
        let mut receivers = lock(&self.receivers);
        let ended = receivers.note(fetch, Instant::now());
        match receivers.line(usize::MAX) {
            None => self.clear(),
            Some(_) => self.draw(|width| receivers.line(width).unwrap_or_default()),
        }
        drop(receivers);
        if let Some(ended) = ended {
            self.print(&ended);
        }
    }

    /// Takes the line away until there is something to show again.
    fn clear(&self) {
        self.bar.finish_and_clear();
        self.bar.set_draw_target(ProgressDrawTarget::hidden());
    }

    /// Draws the line, on a terminal.
    fn draw(&self, line: impl FnOnce(usize) -> String) {
        if !self.shows_bar.load(Ordering::Relaxed) {
            return;
        }
        if self.bar.is_hidden() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            self.bar.reset();
        }
        self.bar.set_message(line(width()));
    }

    /// Shows the end of a transfer and says how it went.
    pub fn summary(&self, summary: &Summary) -> ExitCode {
        self.bar.finish_and_clear();
        if self.json {
            self.object(&Event::Summary(summary.clone()));
        } else {
            self.print(&describe(summary));
            for (source, bytes) in summary.wrong.shown() {
                let bytes = HumanBytes(bytes);
                self.complain(&format!("tow: {source} sent {bytes} that were wrong; others sent them again"));
            }
            self.left_out(&summary.dropped, "-X");
        }
        let is_limited = summary.updated.is_some_and(|updated| updated.max_delete_reached);
        if summary.failed > 0 || is_limited { ExitCode::from(PARTLY) } else { ExitCode::SUCCESS }
    }

    /// Tells of rights that were not carried over; `attributes` is the flag that carries those of attributes.
    pub fn left_out(&self, dropped: &Dropped, attributes: &str) {
        let of = |count: u64, what: &str| {
            (count > 0).then(|| format!("{what} of {}", counted(count, "entry", "entries")))
        };
        let bits = of(dropped.special_bits, "setuid or setgid bits");
        let bits = bits.map(|what| format!("{what} (-p carries them)"));
        let others = of(dropped.privileged_xattrs, "attributes that only root may set");
        let others = others.map(|what| format!("{what} ({attributes} carries them)"));
        let parts: Vec<_> = bits.into_iter().chain(others).collect();
        if !parts.is_empty() {
            self.complain(&format!("tow: left out: {}", parts.join(", and ")));
        }
    }

    /// Shows the end of a list.
    pub fn list_end(&self, summary: &Summary) -> ExitCode {
        match self.json {
            true => self.object(&Event::Summary(summary.clone())),
            false => {
                let entries = counted(summary.entries, "entry", "entries");
                self.print(&format!("tow: {entries}, {} in files", HumanBytes(summary.bytes)));
            }
        }
        if summary.failed > 0 { ExitCode::from(PARTLY) } else { ExitCode::SUCCESS }
    }

    /// Shows an error: what happened, and what to do next.
    pub fn error(&self, error: &ApiError) -> ExitCode {
        self.bar.finish_and_clear();
        if self.json {
            self.object(&Event::Failed(error.clone()));
        } else {
            self.complain(&format!("tow: {}", error.message));
            if let Some(hint) = &error.hint {
                self.complain(&format!("     {hint}"));
            }
        }
        if error.kind == ErrorKind::Usage { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
    }

    /// After ^C: `what` becomes of what was done so far.
    pub fn interrupted(&self, what: &str) -> ExitCode {
        self.bar.finish_and_clear();
        match self.json {
            true => {
                let error = ApiError::new(ErrorKind::Interrupted, "interrupted");
                self.object(&Event::Failed(if what.is_empty() { error } else { error.hint(what) }));
            }
            false if what.is_empty() => self.print("tow: interrupted"),
            false => self.print(&format!("tow: interrupted; {what}")),
        }
        ExitCode::from(INTERRUPTED)
    }
}

/// Columns of the terminal, less the last one, behind which some wrap.
fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    let columns = size.ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    columns.unwrap_or(80) - 1
}

/// True if what is typed at the terminal does not show.
fn is_typed_blindly() -> bool {
    let attributes = rustix::termios::tcgetattr(std::io::stderr());
    attributes.is_ok_and(|attributes| !attributes.local_modes.contains(rustix::termios::LocalModes::ECHO))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Text of an error with its path, which may stand whole in the error itself.
pub fn of_path(path: &str, error: &str) -> String {
    let error = display_text(error);
    match error.split_once(": ") {
        Some((whole, _)) if is_below(whole, path) => error,
        _ => format!("{path}: {error}"),
    }
}

/// True if `whole` is the path, or one that ends with it.
fn is_below(whole: &str, path: &str) -> bool {
    whole
        .strip_suffix(path)
        .is_some_and(|front| front.is_empty() || front.ends_with('/') || path.starts_with('/'))
}

/// A number of things in groups of three digits, of which one has another name than several.
pub fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{} {}", HumanCount(number), if number == 1 { one } else { several })
}

/// Line on what is waited for, and how long.
pub fn waiting(what: &str, seconds: Option<u64>) -> String {
    let tries = seconds.map(|seconds| format!("; trying for {seconds} s more")).unwrap_or_default();
    format!("tow: waiting for {what}{tries}")
}

fn about_to_receive(receiving: &Announced) -> String {
    let name = display_name(&receiving.name);
    let what = match receiving.kind {
        _ if name.is_empty() => "what has no name".into(),
        EntryKind::Directory => format!("{name}/"),
        _ => name,
    };
    let size = receiving.size.map(|size| format!(" ({})", HumanBytes(size))).unwrap_or_default();
    let output = display_name(receiving.output.as_os_str().as_encoded_bytes());
    format!("tow: receiving {what}{size} into {output}")
}

fn describe(summary: &Summary) -> String {
    let mut parts = Vec::new();
    parts.extend(summary.sources.shown().into_iter().map(bar::from_source));
    if summary.kept > 0 {
        parts.push(format!("{} were here", HumanBytes(summary.kept)));
    }
    if summary.zeros > 0 {
        parts.push(format!("{} in holes", HumanBytes(summary.zeros)));
    }
    let seconds = summary.seconds.as_f64();
    let from = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
    let failed = match summary.failed {
        0 => String::new(),
        failed => format!("; {} failed", counted(failed, "file", "files")),
    };
    let skipped = match summary.skipped {
        0 => String::new(),
        skipped => format!("; {} left out", counted(skipped, "entry", "entries")),
    };
    let updated = summary.updated.map_or_else(String::new, |updated| {
        let UpdateCounts { dry_run, created, transferred, deleted, .. } = updated;
        let unless = if dry_run { ", were this no dry run" } else { "" };
        let files = counted(transferred, "file", "files");
        let (created, deleted) = (HumanCount(created), HumanCount(deleted));
        format!("; {created} new, {files} brought up to date, {deleted} removed{unless}")
    });
    // Of files that failed not all came.
    let came = summary.sources.total() + summary.kept + summary.zeros;
    let bytes = if summary.updated.is_some() {
        came
    } else if summary.failed > 0 {
        summary.bytes.min(came)
    } else {
        summary.bytes
    };
    format!(
        "tow: {} in {seconds:.1} s{from} -> {}{updated}{skipped}{failed}",
        HumanBytes(bytes),
        display_name(summary.output.as_os_str().as_encoded_bytes()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_named_once() {
        for (path, error) in [("/d/f", "/d/f: permission denied"), ("f", "/d/f: permission denied")] {
            assert_eq!(of_path(path, error), "/d/f: permission denied");
        }
        assert_eq!(of_path("f", "/d/of: permission denied"), "f: /d/of: permission denied");
        assert_eq!(of_path("f", "a FIFO is left out"), "f: a FIFO is left out");
    }
}
