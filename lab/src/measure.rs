//! A process, and what it took: time, CPU and memory, told by the kernel when it is waited for.
//!
//! CPU seconds are the process's own and those of all descendants that were waited for in turn, so
//! that what ssh starts, or a server forks for a connection, is counted. Peak memory is that of the
//! largest single process among them; it cannot be less than what this program itself has at that moment,
//! whose memory a new process shares until it is another program.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use thiserror::Error;
use wait4::Wait4;

/// Interval at which a server's children are counted.
const TICK: Duration = Duration::from_millis(20);
/// Time that a process asked to end has to do so, before it is killed.
const LAST_ORDERS: Duration = Duration::from_secs(5);
/// A server's children that have nothing to do any more end within this time.
const SETTLING: Duration = Duration::from_secs(2);

/// Makes the kernel forget a process's highest memory (proc_pid_clear_refs(5)).
const FORGET_PEAK: &str = "5";

/// In /proc/ID/stat after the name: CPU time of the process in its own code and in the kernel, and of children
/// that were waited for.
const CPU_FIELDS: Range<usize> = 11..15;

/// Reason why a process told nothing.
#[derive(Debug, Error)]
pub enum ProcessError {
    /// It did not start.
    #[error("{program} does not start: {source}")]
    Start {
        /// Its name.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
    /// It was still running.
    #[error("not done after {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The kernel told nothing.
    #[error("cannot wait for a process: {0}")]
    Wait(io::Error),
}

/// Time and memory that a process took.
#[derive(Debug, Clone, Copy)]
pub struct ProcessEnd {
    /// Its exit status.
    pub status: ExitStatus,
    /// CPU time of it and of the descendants that were waited for.
    pub cpu: Duration,
    /// Bytes of memory of the largest of them at its highest.
    pub peak: u64,
    /// Time of its end.
    pub at: Instant,
}

/// A running process, in a process group of its own. Dropped, it is killed.
pub struct Process {
    pid: Pid,
    report: Receiver<io::Result<ProcessEnd>>,
    ended: Option<ProcessEnd>,
}

impl Process {
    /// Starts it.
    pub fn start(mut command: Command) -> Result<Self, ProcessError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |source| ProcessError::Start { program: program.clone(), source };
        // Else it could not be less than what this program ever had. A system that can't forget leaves it so.
        let _ = fs::write("/proc/self/clear_refs", FORGET_PEAK);
        let child = command.process_group(0).spawn().map_err(failed)?;
        let pid = Pid::from_child(&child);
        let (tell, report) = channel();
        // The kernel tells what a process took to whoever waits for it, and that wait has no limit.
        thread::spawn(move || {
            let ended = child.wait4().map(|used| ProcessEnd {
                status: used.status,
                cpu: used.rusage.utime + used.rusage.stime,
                peak: used.rusage.maxrss,
                at: Instant::now(),
            });
            // Nobody may be interested any more.
            let _ = tell.send(ended);
        });
        Ok(Self { pid, report, ended: None })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Usage of it, if it has ended.
    pub fn try_wait(&mut self) -> Result<Option<ProcessEnd>, ProcessError> {
        match self.wait_until(Instant::now()) {
            Ok(ended) => Ok(Some(ended)),
            Err(ProcessError::TimedOut(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits for its end.
    pub fn wait(&mut self, limit: Duration) -> Result<ProcessEnd, ProcessError> {
        let deadline = Instant::now() + limit;
        self.wait_until(deadline).map_err(|error| match error {
            ProcessError::TimedOut(_) => ProcessError::TimedOut(limit),
            other => other,
        })
    }

    fn wait_until(&mut self, deadline: Instant) -> Result<ProcessEnd, ProcessError> {
        loop {
            if let Some(ended) = self.ended {
                return Ok(ended);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.report.recv_timeout(left) {
                Ok(ended) => self.ended = Some(ended.map_err(ProcessError::Wait)?),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(ProcessError::Wait(io::ErrorKind::BrokenPipe.into()));
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    return Err(ProcessError::TimedOut(Duration::ZERO));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Waits a moment for its descendants to end by themselves until `idle` are left.
    pub fn settle(&self, idle: usize) {
        let deadline = Instant::now() + SETTLING;
        while descendants(self.id()).len() > idle && Instant::now() < deadline {
            thread::sleep(TICK);
        }
    }

    /// CPU time so far, in the kernel's ticks: its own and that of descendants that were waited for.
    pub fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap_or_default();
        let numbers = stat.rsplit_once(')').map_or("", |(_, numbers)| numbers).split_whitespace();
        let ticks: u64 =
            numbers.skip(CPU_FIELDS.start).take(CPU_FIELDS.len()).flat_map(str::parse::<u64>).sum();
        Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64)
    }

    /// Asks it to end by a signal, and tells what it took. First its descendants get a moment to end
    /// by themselves until `idle` are left, so that it has waited for those that did the work.
    pub fn stop(mut self, signal: Signal, idle: usize) -> Result<ProcessEnd, ProcessError> {
        self.settle(idle);
        if self.try_wait()?.is_none() {
            // One that ended just now is no error.
            let _ = kill_process(self.pid, signal);
        }
        self.wait(LAST_ORDERS)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.try_wait(), Ok(None)) {
            let _ = kill_process_group(self.pid, Signal::KILL);
            let _ = self.report.recv_timeout(LAST_ORDERS);
        }
    }
}

/// Children, their children and so on, as far as they run now.
pub fn descendants(id: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(parent) = parent(child) {
            children.entry(parent).or_default().push(child);
        }
    }
    let mut found = children.remove(&id).unwrap_or_default();
    let mut next = 0;
    while let Some(&id) = found.get(next) {
        found.extend(children.remove(&id).unwrap_or_default());
        next += 1;
    }
    found
}

/// Fields of /proc/ID/stat after the name, which may hold anything: state, parent, ...
fn parent(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    fn shell(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command).unwrap()
    }

    /// The same, once it has said a line.
    fn talking_shell(script: &str) -> Process {
        let (said, output) = io::pipe().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(output);
        let process = Process::start(command).unwrap();
        BufReader::new(said).read_line(&mut String::new()).unwrap();
        process
    }

    #[test]
    fn a_grandchild_counts() {
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut process = shell(&format!("sh -c '{work}'; true"));
        let ended = process.wait(Duration::from_secs(60)).unwrap();
        assert!(ended.status.success());
        assert!(ended.cpu > Duration::from_millis(10), "{:?}", ended.cpu);
        assert!(ended.peak > 100_000, "{}", ended.peak);
    }

    #[test]
    fn what_this_program_had_once_does_not_count() {
        let large = vec![1_u8; 256 << 20];
        assert!(std::hint::black_box(&large).iter().all(|&byte| byte == 1));
        drop(large);
        let ended = shell("true").wait(Duration::from_secs(60)).unwrap();
        assert!(ended.peak < 200 << 20, "{}", ended.peak);
    }

    #[test]
    fn cpu_time_is_told_while_it_runs() {
        let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut process = talking_shell(&format!("{work}; echo done; sleep 100"));
        assert!(process.cpu() >= Duration::from_millis(20), "{:?}", process.cpu());
        assert!(process.try_wait().unwrap().is_none());
    }

    #[test]
    fn a_limit_is_kept_and_the_rest_is_killed() {
        let mut process = shell("sleep 100 & sleep 100");
        let error = process.wait(Duration::from_millis(300)).unwrap_err();
        assert!(matches!(error, ProcessError::TimedOut(_)));
        let id = process.id();
        assert_eq!(descendants(id).len(), 2);
        drop(process);
        assert!(descendants(id).is_empty());
    }

    #[test]
    fn what_is_stopped_tells_what_it_took() {
        // A person who runs this in the background may have it ignore SIGINT, which a shell then can't change.
        let process = talking_shell("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done");
        let ended = process.stop(Signal::TERM, 1).unwrap();
        assert_eq!(ended.status.code(), Some(7));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = Process::start(Command::new("no-such-program")).err().unwrap().to_string();
        assert!(error.starts_with("no-such-program does not start"), "{error}");
    }
}
