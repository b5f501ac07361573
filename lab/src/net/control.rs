//! Other processes change a running link: a line to the lab's socket, and its answer.
//!
//! The line is `LINK WAY KEY=VALUE ...`, with the keys and values of a scenario; the answer is empty,
//! or says what is wrong.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use towpath_simnet::link::LinkQueue;
use towpath_simnet::scenario::{LinkWay, Params};
use towpath_simnet::units;

use super::registry;
use crate::emulator::{Emulator, PLAIN};
use crate::error::LabError;

/// The longest line.
const LONGEST: u64 = 4096;
/// For a line, and for its answer.
const WAIT_LIMIT: Duration = Duration::from_secs(5);

/// Answers until it is dropped.
pub(super) struct NetControl {
    socket: PathBuf,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NetControl {
    /// `links` are the names of the emulator's links.
    pub(super) fn listen(
        socket: &Path,
        links: Vec<String>,
        emulator: Arc<Emulator>,
    ) -> Result<Self, LabError> {
        let listener = UnixListener::bind(socket).map_err(LabError::io("making", socket))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            for stream in listener.incoming().take_while(|_| !told.load(Ordering::Relaxed)) {
                // A client that does not read the answer has gone.
                let _ = stream.and_then(|stream| answer(&stream, &links, &emulator));
            }
        });
        Ok(Self { socket: socket.into(), is_over, thread: Some(thread) })
    }
}

impl Drop for NetControl {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let is_woken = UnixStream::connect(&self.socket).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| is_woken) {
            let _ = thread.join();
        }
    }
}

/// Asks the process of a lab to change a link.
pub fn set(lab: &str, link: &str, way: &str, params: &[String]) -> Result<(), LabError> {
    let line = format!("{link} {way} {}\n", params.join(" "));
    let ask = || {
        let mut stream = UnixStream::connect(registry::socket(lab))?;
        stream.set_read_timeout(Some(WAIT_LIMIT))?;
        stream.write_all(line.as_bytes())?;
        let mut said = String::new();
        stream.take(LONGEST).read_to_string(&mut said)?;
        Ok(said)
    };
    let said: String = ask().map_err(|error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => LabError::NoLab(lab.into()),
        _ => LabError::tried(format!("asking the lab `{lab}`"))(error),
    })?;
    match said.is_empty() {
        true => Ok(()),
        false => Err(LabError::Refused { lab: lab.into(), said }),
    }
}

fn answer(mut stream: &UnixStream, links: &[String], emulator: &Emulator) -> std::io::Result<()> {
    stream.set_read_timeout(Some(WAIT_LIMIT))?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line)?;
    match read(&line, links) {
        Ok((link, way, params)) => match emulator.set(link, way, &params) {
            true => Ok(()),
            false => stream.write_all(PLAIN.as_bytes()),
        },
        Err(what) => stream.write_all(what.as_bytes()),
    }
}

fn read(line: &str, links: &[String]) -> Result<(usize, LinkWay, Params), String> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next().unwrap_or_default();
    let link = links.iter().position(|link| link == name);
    let link = link.ok_or_else(|| format!("there is no link `{name}`, but {}", links.join(", ")))?;
    let way = match words.next() {
        Some("forth") => LinkWay::Forth,
        Some("back") => LinkWay::Back,
        Some("both") => LinkWay::Both,
        other => return Err(format!("`{}` is not forth, back or both", other.unwrap_or_default())),
    };
    let mut params = Params::default();
    words.try_for_each(|word| read_param(word, &mut params))?;
    Ok((link, way, params))
}

fn read_param(word: &str, params: &mut Params) -> Result<(), String> {
    let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not key=value"))?;
    let number = || value.parse().map_err(|_| format!("{key}: `{value}` is not a number"));
    match key {
        "rate" => params.rate = Some(units::rate(value)?),
        "delay" => params.delay = Some(units::duration(value)?),
        "loss" => params.loss = Some(units::share(value)?),
        "burst" => params.burst = Some(number()?).filter(|burst: &f64| *burst >= 1.0),
        "queue" if value.ends_with('s') => params.queue = Some(LinkQueue::Time(units::duration(value)?)),
        "queue" => params.queue = Some(LinkQueue::Bytes(units::bytes(value)?)),
        "overhead" => params.overhead = Some(units::bytes(value)?),
        "cut" => params.cut = Some(value.parse().map_err(|_| "cut is true or false".to_owned())?),
        _ => return Err(format!("`{key}` is none of rate, delay, loss, burst, queue, overhead, cut")),
    }
    if key == "burst" && params.burst.is_none() {
        return Err("burst is packets in a row, 1 or more".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_like_scenarios() {
        let links = ["wire".to_owned(), "up".to_owned()];
        let (link, way, params) = read("up back rate=5mbit queue=20ms cut=true\n", &links).unwrap();
        assert_eq!((link, way), (1, LinkWay::Back));
        let expected = Params {
            rate: Some(5_000_000),
            queue: Some(LinkQueue::Time(Duration::from_millis(20))),
            cut: Some(true),
            ..Params::default()
        };
        assert_eq!(params, expected);
    }

    #[test]
    fn mistakes_are_named() {
        let links = ["wire".to_owned()];
        for (line, expected) in [
            ("", "there is no link ``, but wire"),
            ("wire", "`` is not forth"),
            ("wire forth rate", "`rate` is not key=value"),
            ("wire forth rate=fast", "`fast` is not a rate like 100mbit"),
            ("wire forth burst=0", "burst is packets in a row"),
            ("wire forth burst=x", "burst: `x` is not a number"),
            ("wire forth colour=red", "`colour` is none of"),
        ] {
            let said = read(line, &links).unwrap_err();
            assert!(said.starts_with(expected), "{line}: {said}");
        }
    }
}
