//! `towpath-lab accuracy`: how exact the emulator is on this machine, seen by real programs.
//!
//! Rates are those of what TCP delivers: of a packet of 1,500 bytes 1,448 are data, so 96.5 % of the
//! link's rate is asked for. The emulator's share of a CPU is that of the rate's measurement.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use towpath_simnet::scenario::Scenario;

use crate::error::LabError;
use crate::net::Lab;
use crate::probes::{self, Losses};

/// Data bytes of a packet, and the packet: headers of IP and TCP with time stamps take the rest.
const DATA: f64 = 1448.0;
const PACKET: f64 = 1500.0;
/// Deviations beyond these are marked.
const RATE_BOUND: f64 = 0.02;
const ROUND_TRIP_BOUND: Duration = Duration::from_millis(1);
/// Chance alone moves a loss by this many standard deviations once in 370 times.
const LOSS_BOUND: f64 = 3.0;
const PINGS: u32 = 40;
const WARM_UP: u32 = 2;

/// Measure how exact the emulator is on this machine.
#[derive(Debug, clap::Args)]
pub struct AccuracyArgs {
    /// Seconds for each rate
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Datagrams for each loss
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..))]
    datagrams: u32,
    /// Only settings whose line contains this, like `1gbit` or `20ms`
    #[arg(long, default_value = "")]
    only: String,
}

/// Rate that a link is asked to have.
#[derive(Debug, Clone, Copy)]
struct RateSetting {
    rate: &'static str,
    bits: f64,
    /// In milliseconds; each way takes half of it.
    round_trip: f64,
    loss: f64,
    burst: f64,
}

const fn plain(rate: &'static str, bits: f64, round_trip: f64) -> RateSetting {
    RateSetting { rate, bits, round_trip, loss: 0.0, burst: 1.0 }
}

const fn lossy(loss: f64, burst: f64) -> RateSetting {
    RateSetting { rate: "100mbit", bits: 1e8, round_trip: 20.0, loss, burst }
}

const SETTINGS: [RateSetting; 15] = [
    plain("10mbit", 1e7, 0.0),
    plain("10mbit", 1e7, 20.0),
    plain("10mbit", 1e7, 66.0),
    plain("100mbit", 1e8, 0.0),
    plain("100mbit", 1e8, 20.0),
    plain("100mbit", 1e8, 33.0),
    plain("100mbit", 1e8, 66.0),
    plain("1gbit", 1e9, 0.0),
    plain("1gbit", 1e9, 20.0),
    plain("1gbit", 1e9, 33.0),
    plain("1gbit", 1e9, 66.0),
    lossy(0.01, 1.0),
    lossy(0.05, 1.0),
    lossy(0.01, 3.0),
    lossy(0.05, 5.0),
];

/// One thing that was asked for and measured.
struct RateMeasured {
    text: String,
    is_beyond: bool,
}

/// Runs the command.
pub fn run(args: &AccuracyArgs) -> Result<(), LabError> {
    let mut beyond = 0;
    let head = format!(
        "{:<24}{:<34}{:<30}{:<30}",
        "link", "asked, measured: TCP Mbit/s", "ping ms", "loss %, burst"
    );
    print(&format!("{head}{:<8}{}", "CPU", "load"))?;
    let chosen = SETTINGS.iter().filter(|setting| setting.name().contains(&args.only));
    for setting in chosen {
        beyond += usize::from(measure(setting, args)?);
    }
    print(&format!(
        "{beyond} beyond 2 % of the rate, 1 ms of the ping or 3 standard deviations of the loss (marked !)"
    ))
}

/// Measures one link and prints its line: whether any of it is beyond its bound.
fn measure(setting: &RateSetting, args: &AccuracyArgs) -> Result<bool, LabError> {
    let scenario = Scenario::parse(&setting.scenario());
    let scenario = scenario.map_err(|error| LabError::Scenario(error.to_string()))?;
    let lab = Lab::up(&scenario, &scenario.cases[0])?;
    let round_trip = match setting.loss > 0.0 {
        true => None,
        false => Some(setting.judge_round_trip(probes::round_trip(&lab, "a", "b", PINGS)?)),
    };
    let (start, cpu) = (Instant::now(), lab.emulator_cpu());
    let (rate, loss) = match setting.loss > 0.0 {
        true => {
            let losses = probes::losses(&lab, "a", "b", args.datagrams)?;
            (None, Some(setting.judge_loss(losses, args.datagrams)))
        }
        false => {
            let rate = probes::tcp_rate(&lab, "a", "b", WARM_UP, args.seconds)?;
            (Some(setting.judge_rate(rate)), None)
        }
    };
    let share = (lab.emulator_cpu() - cpu).as_secs_f64() / start.elapsed().as_secs_f64();
    let cells = [&rate, &round_trip, &loss].map(|it| it.as_ref().map_or("", |it| &it.text));
    let [rate_text, round_trip_text, loss_text] = cells;
    print(&format!(
        "{:<24}{rate_text:<34}{round_trip_text:<30}{loss_text:<30}{:<8}{}",
        setting.name(),
        format!("{:.0} %", share * 100.0),
        load()
    ))?;
    Ok([rate, round_trip, loss].into_iter().flatten().any(|it| it.is_beyond))
}

impl RateSetting {
    fn name(&self) -> String {
        let loss = match self.loss > 0.0 {
            true => format!(" {}%", self.loss * 100.0),
            false => String::new(),
        };
        let burst = if self.burst > 1.0 { format!(" x{}", self.burst) } else { String::new() };
        format!("{} {}ms{loss}{burst}", self.rate, self.round_trip)
    }

    /// Two hosts with buffers for what such a link holds, and a queue so long that TCP's answer to a full
    /// one never leaves the link idle: it is the link that is measured. Only one way loses.
    fn scenario(&self) -> String {
        let Self { rate, round_trip, loss, burst, .. } = self;
        let delay = round_trip / 2.0;
        format!(
            "about = 'accuracy'\nhosts = ['a', 'b']\n[[link]]\nbetween = ['a', 'b']\nrate = '{rate}'\n\
             delay = '{delay}ms'\nqueue = '200ms'\nloss = {loss}\nburst = {burst}\nback = {{ loss = 0.0 }}\n\
             [[case]]\nname = ''\n[case.host]\n'net.ipv4.tcp_congestion_control' = 'cubic'\n\
             'net.ipv4.tcp_rmem' = '4096 1000000 64000000'\n'net.ipv4.tcp_wmem' = '4096 1000000 64000000'\n"
        )
    }

    fn judge_rate(&self, measured: f64) -> RateMeasured {
        let asked = self.bits * DATA / PACKET;
        let deviation = measured / asked - 1.0;
        let is_beyond = deviation.abs() > RATE_BOUND;
        let text = format!("{:.2} {:.2} {:+.2} %", asked / 1e6, measured / 1e6, deviation * 100.0);
        RateMeasured { text: marked(text, is_beyond), is_beyond }
    }

    fn judge_round_trip(&self, measured: Duration) -> RateMeasured {
        let measured = measured.as_secs_f64() * 1e3;
        let deviation = measured - self.round_trip;
        let is_beyond = deviation.abs() > ROUND_TRIP_BOUND.as_secs_f64() * 1e3;
        let text = format!("{:.1} {measured:.2} {deviation:+.2}", self.round_trip);
        RateMeasured { text: marked(text, is_beyond), is_beyond }
    }

    fn judge_loss(&self, measured: Losses, datagrams: u32) -> RateMeasured {
        // The variance of a share among packets that are lost in runs.
        let variance = self.loss * (1.0 - self.loss) * (2.0 * self.burst - 1.0) / f64::from(datagrams);
        let deviation = measured.share - self.loss;
        let is_beyond = deviation.abs() > LOSS_BOUND * variance.sqrt();
        let Losses { share, burst } = measured;
        let text = format!(
            "{} {:.2} {:+.2}, {} {burst:.2}",
            self.loss * 100.0,
            share * 100.0,
            deviation * 100.0,
            self.burst
        );
        RateMeasured { text: marked(text, is_beyond), is_beyond }
    }
}

fn marked(text: String, is_beyond: bool) -> String {
    if is_beyond { text + " !" } else { text }
}

/// The mean number of programs that wanted to run in the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().into()
}

fn print(line: &str) -> Result<(), LabError> {
    writeln!(io::stdout().lock(), "{line}").map_err(LabError::tried("writing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_those_of_the_settings() {
        for setting in SETTINGS {
            let link = &Scenario::parse(&setting.scenario()).unwrap().links[0];
            assert_eq!(link.forth.rate, Some(setting.bits as u64), "{}", setting.name());
            assert_eq!(link.forth.delay + link.back.delay, Duration::from_secs_f64(setting.round_trip / 1e3));
            assert_eq!((link.forth.loss, link.back.loss), (setting.loss, 0.0));
        }
    }

    #[test]
    fn deviations_are_marked_beyond_their_bounds() {
        let setting = plain("100mbit", 1e8, 20.0);
        assert_eq!(setting.judge_rate(96.0e6).text, "96.53 96.00 -0.55 %");
        assert_eq!(setting.judge_rate(94.5e6).text, "96.53 94.50 -2.11 % !");
        assert_eq!(setting.judge_round_trip(Duration::from_micros(20_300)).text, "20.0 20.30 +0.30");
        assert!(setting.judge_round_trip(Duration::from_micros(21_100)).is_beyond);
        let lossy = lossy(0.01, 1.0);
        let near = Losses { share: 0.0105, burst: 1.01 };
        assert_eq!(lossy.judge_loss(near, 10_000).text, "1 1.05 +0.05, 1 1.01");
        assert!(lossy.judge_loss(Losses { share: 0.014, ..near }, 10_000).is_beyond);
    }
}
