//! Effects of a link on real traffic, seen from its two ends: the time of a ping, the rate of a TCP
//! connection of iperf3, the losses among numbered datagrams.

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use serde::Deserialize;

use crate::error::LabError;
use crate::net::Lab;

/// Datagrams are sent in groups, one in each of these.
const GROUP_TIME: Duration = Duration::from_millis(1);
const GROUP: u32 = 20;
/// A receiver that is kept from running loses none of these.
const RECEIVE_BUFFER: usize = 64 << 20;
/// Nothing came for so long: nothing will.
const SILENCE: Duration = Duration::from_secs(1);
/// In seconds, for a program beyond what it was told to take.
const WAIT_LIMIT: u64 = 30;
/// Times that it is tried to reach an iperf3 that was just started.
const TRIES: u32 = 20;
const PORT: u16 = 7001;

/// Losses that were seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Losses {
    /// The lost part of the datagrams.
    pub share: f64,
    /// Mean datagrams lost in a row.
    pub burst: f64,
}

/// The median time of so many pings.
pub fn round_trip(lab: &Lab, from: &str, to: &str, count: u32) -> Result<Duration, LabError> {
    let mut command = lab.command(from, "timeout");
    command.args([&WAIT_LIMIT.to_string(), "ping", "-n", "-i", "0.02", "-c", &count.to_string()]);
    let output = command.arg(lab.address(to).to_string()).output();
    let output = output.map_err(LabError::tried("running `ping`"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let times = text.lines().filter_map(|line| line.split_once("time=")?.1.split(' ').next()?.parse().ok());
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied();
    let failed = || {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        LabError::Command { command: "ping (package iputils-ping)".into(), said }
    };
    median.map(|millis| Duration::from_secs_f64(millis / 1e3)).ok_or_else(failed)
}

/// Bits a second that a TCP connection delivers, after `warm_up` and for `time`, both in seconds: the
/// median of the receiver's half seconds, so that a moment in which it may not run does not count.
pub fn tcp_rate(lab: &Lab, from: &str, to: &str, warm_up: u32, time: u32) -> Result<f64, LabError> {
    let tried = |error| LabError::tried("running `iperf3` (package iperf3)")(error);
    let mut server = lab.command(to, "iperf3");
    server.args(["-s", "-1", "-J", "-i", "0.5"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = server.spawn().map_err(tried)?;
    let limit = u64::from(warm_up + time) + WAIT_LIMIT;
    let connect = || {
        let mut client = lab.command(from, "timeout");
        client.args([
            &limit.to_string(),
            "iperf3",
            "-t",
            &time.to_string(),
            "-O",
            &warm_up.to_string(),
            "-c",
        ]);
        client.arg(lab.address(to).to_string()).stdout(Stdio::null()).stderr(Stdio::null());
        thread::sleep(Duration::from_millis(100));
        client.status().map_err(tried)
    };
    let mut tries = (0..TRIES).map(|_| connect());
    // It serves one client, and ends.
    if !tries.any(|status| status.is_ok_and(|status| status.success())) {
        server.kill().map_err(tried)?;
    }
    let said = server.wait_with_output().map_err(tried)?.stdout;
    read_rate(&said).ok_or_else(|| {
        let said = String::from_utf8_lossy(&said).trim().into();
        LabError::Command { command: "iperf3".into(), said }
    })
}

#[derive(Deserialize)]
struct ProbeReport {
    intervals: Vec<Interval>,
}

#[derive(Deserialize)]
struct Interval {
    sum: ProbeSum,
}

#[derive(Deserialize)]
struct ProbeSum {
    bits_per_second: f64,
    omitted: bool,
}

fn read_rate(json: &[u8]) -> Option<f64> {
    let report: ProbeReport = serde_json::from_slice(json).ok()?;
    let sums = report.intervals.into_iter().map(|it| it.sum).filter(|it| !it.omitted);
    let mut rates: Vec<f64> = sums.map(|it| it.bits_per_second).collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}

/// Sends so many numbered datagrams.
pub fn losses(lab: &Lab, from: &str, to: &str, count: u32) -> Result<Losses, LabError> {
    let work = || {
        let receiver = lab.enter(to, || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT)))??;
        set_socket_recv_buffer_size_force(&receiver, RECEIVE_BUFFER)?;
        receiver.set_read_timeout(Some(SILENCE))?;
        let sender = lab.enter(from, || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
        sender.connect((lab.address(to), PORT))?;
        let receiving = thread::spawn(move || receive(&receiver, count));
        send(&sender, count)?;
        receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    };
    let has_come = work().map_err(LabError::tried("sending datagrams"))?;
    Ok(count_losses(&has_come))
}

fn send(sender: &UdpSocket, count: u32) -> io::Result<()> {
    let start = Instant::now();
    for number in 0..count {
        sender.send(&number.to_be_bytes())?;
        if number % GROUP == GROUP - 1 {
            let due = GROUP_TIME * (number / GROUP + 1);
            thread::sleep(due.saturating_sub(start.elapsed()));
        }
    }
    Ok(())
}

fn receive(receiver: &UdpSocket, count: u32) -> io::Result<Vec<bool>> {
    let mut has_come = vec![false; count as usize];
    let mut number = [0; 4];
    loop {
        match receiver.recv(&mut number) {
            Ok(_) => {
                let number = u32::from_be_bytes(number);
                if let Some(it) = has_come.get_mut(number as usize) {
                    *it = true;
                }
                if number + 1 == count {
                    return Ok(has_come);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(has_come),
            Err(error) => return Err(error),
        }
    }
}

fn count_losses(has_come: &[bool]) -> Losses {
    let lost = has_come.iter().filter(|&&has_come| !has_come).count();
    let runs = has_come.split(|&has_come| has_come).filter(|run| !run.is_empty()).count();
    Losses { share: lost as f64 / has_come.len() as f64, burst: lost as f64 / runs.max(1) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_in_a_row_are_one_burst() {
        let has_come: Vec<bool> = "..xx..x...".chars().map(|c| c == '.').collect();
        assert_eq!(count_losses(&has_come), Losses { share: 0.3, burst: 1.5 });
        assert_eq!(count_losses(&[true; 5]), Losses { share: 0.0, burst: 0.0 });
        assert_eq!(count_losses(&[false; 5]), Losses { share: 1.0, burst: 5.0 });
    }

    #[test]
    fn the_rate_is_the_median_after_the_warm_up() {
        let interval = |rate: u32, omitted: bool| {
            format!(r#"{{"streams": [], "sum": {{"bits_per_second": {rate}, "omitted": {omitted}}}}}"#)
        };
        let intervals = [interval(9, true), interval(5, false), interval(1, false), interval(6, false)];
        let json = format!(r#"{{"start": {{}}, "intervals": [{}]}}"#, intervals.join(", "));
        assert_eq!(read_rate(json.as_bytes()), Some(5.0));
        assert_eq!(read_rate(br#"{"intervals": [], "error": "unable to connect"}"#), None);
    }
}
