//! Delay, loss, cuts, changes, and that bytes stay what they are.

use std::time::Duration;

use towpath_lab::net::Lab;
use towpath_simnet::scenario::{LinkWay, Params};

use crate::machinery::{answered, eventually, need_lab, ping, scenario, total, transfer, up};
use crate::runner::situations;

situations![
    a_ping_takes_the_delays_of_both_ways,
    a_cut_link_loses_everything_and_recovers,
    each_way_is_cut_on_its_own,
    what_the_counters_call_lost_is_lost,
    bytes_stay_what_they_are_also_with_losses,
    a_rate_holds_up_what_is_sent,
    changes_come_at_their_times_until_they_are_stopped,
    a_link_of_which_nothing_is_asked_has_no_emulator,
];

const WIRE: &str = "hosts = ['a', 'b']\n[[link]]\nname = 'wire'\nbetween = ['a', 'b']\n";

fn wire(params: &str) -> Lab {
    up(&format!("{WIRE}{params}"))
}

fn cut(is_cut: bool) -> Params {
    Params { cut: Some(is_cut), ..Params::default() }
}

fn a_ping_takes_the_delays_of_both_ways() {
    let lab = wire("delay = '20ms'\nback = { delay = '15ms' }");
    let (pings, _) = answered(&lab, "a", lab.address("b"), 10);
    assert!(pings.shortest >= Some(Duration::from_millis(35)), "{pings:?}");
    let (back, _) = answered(&lab, "b", lab.addresses("a")[0], 3);
    assert!(back.shortest >= Some(Duration::from_millis(35)), "{back:?}");
}

fn a_cut_link_loses_everything_and_recovers() {
    let lab = wire("delay = '1ms'");
    answered(&lab, "a", lab.address("b"), 3);
    lab.set(0, LinkWay::Both, &cut(true)).unwrap();
    assert_eq!(ping(&lab, "a", lab.address("b"), 5).received, 0);
    assert_eq!(lab.counters().unwrap()[0][0].lost, 5);
    lab.set(0, LinkWay::Both, &cut(false)).unwrap();
    answered(&lab, "a", lab.address("b"), 3);
    assert!(lab.set(1, LinkWay::Both, &cut(true)).is_err(), "there is one link");
}

fn each_way_is_cut_on_its_own() {
    let lab = wire("delay = '1ms'");
    lab.set(0, LinkWay::Back, &cut(true)).unwrap();
    assert_eq!(ping(&lab, "a", lab.address("b"), 5).received, 0);
    let [forth, back] = lab.counters().unwrap()[0];
    assert_eq!((forth.packets, forth.lost), (5, 0));
    assert_eq!((back.packets, back.lost), (5, 5));
}

fn what_the_counters_call_lost_is_lost() {
    let lab = wire("loss = '20%'\nburst = 3");
    let pings = ping(&lab, "a", lab.address("b"), 300);
    let lost = total(lab.counters().unwrap()[0]).lost;
    assert_eq!(pings.sent - pings.received, lost);
    assert!((30..270).contains(&lost), "{lost} of 300 lost, with 20 % each way");
}

fn bytes_stay_what_they_are_also_with_losses() {
    let lab = wire("delay = '2ms'\nrate = '200mbit'\nqueue = '200k'\nloss = '1%'");
    assert!(transfer(&lab, "a", "b", 4 << 20));
    let [forth, _] = lab.counters().unwrap()[0];
    assert!(forth.packets >= (4 << 20) / 1500, "the model saw packets, not super-packets: {forth:?}");
    assert!(forth.lost + forth.overflows > 0, "{forth:?}");
    assert_eq!(forth.delivered.div_ceil(1500).max(forth.packets), forth.packets, "of 1500 bytes at most");
}

fn a_rate_holds_up_what_is_sent() {
    let lab = wire("rate = '16mbit'");
    let start = std::time::Instant::now();
    assert!(transfer(&lab, "a", "b", 2 << 20));
    let least = Duration::from_secs_f64(f64::from(2 << 20) * 8.0 / 16e6);
    assert!(start.elapsed() >= least, "{:?} for what takes {least:?}", start.elapsed());
}

fn changes_come_at_their_times_until_they_are_stopped() {
    need_lab();
    let scenario = scenario(&format!(
        "{WIRE}[[change]]\nat = '50ms'\nlink = 'wire'\ncut = true\n\
         [[change]]\nat = '60ms'\nlink = 'wire'\nway = 'back'\ncut = false\n"
    ));
    let lab = Lab::up(&scenario, &scenario.cases[0]).unwrap();
    drop(lab.start_changes());
    // They were stopped: these take longer than until the last one.
    answered(&lab, "a", lab.address("b"), 20);
    let _changes = lab.start_changes();
    eventually("the link is cut", || ping(&lab, "a", lab.address("b"), 1).received == 0);
    let before = lab.counters().unwrap()[0][1];
    assert_eq!(ping(&lab, "b", lab.address("a"), 2).received, 0);
    let after = lab.counters().unwrap()[0][1];
    assert_eq!((after.packets - before.packets, after.lost - before.lost), (2, 0), "one way is not cut");
}

fn a_link_of_which_nothing_is_asked_has_no_emulator() {
    let lab = wire("");
    answered(&lab, "a", lab.address("b"), 3);
    let before = lab.counters().unwrap()[0];
    assert!(transfer(&lab, "a", "b", 4 << 20));
    let after = lab.counters().unwrap()[0];
    let sent = after[0].bytes - before[0].bytes;
    assert!((4 << 20..5 << 20).contains(&sent), "{sent} bytes for 4 MiB");
    assert!(after[1].bytes > before[1].bytes, "acknowledgements");
    assert_eq!(lab.emulator_cpu(), Duration::ZERO);
    let said = lab.set(0, LinkWay::Both, &cut(true)).unwrap_err().to_string();
    assert!(said.contains("give it a rate"), "{said}");
}
