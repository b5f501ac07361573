//! Guests of a relay: who is joined with whom, who is refused and why, and that nothing is kept of who left.

use std::net::Ipv4Addr;

use super::*;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const CIRCUIT: CircuitId = CircuitId([5; 16]);

fn node(n: u8) -> NodeId {
    NodeId([n; 32])
}

/// A table with guests 1 and on, each of the node of its number.
fn account(n: u8) -> RelayAccount {
    RelayAccount { node: node(n), address: ADDRESS }
}

fn table(guests: u64, quotas: Quotas) -> RelayTable {
    let mut table = RelayTable::new(quotas);
    (1..=guests).for_each(|id| table.enter(id, node(id as u8), ADDRESS).unwrap());
    table
}

fn actions(table: &mut RelayTable) -> Vec<TableAction> {
    std::iter::from_fn(|| table.poll_action()).collect()
}

fn ask(table: &mut RelayTable, id: GuestId, request: TableRequest, now: Instant) -> Vec<TableAction> {
    table.request(id, request, now);
    actions(table)
}

fn call(callee: u8) -> TableRequest {
    TableRequest::Call { node: node(callee), circuit: CIRCUIT }
}

fn resume(other: u8, received: u64, is_allowed: bool) -> TableRequest {
    TableRequest::Resume { circuit: CIRCUIT, node: node(other), received, is_allowed }
}

#[test]
fn a_call_is_taken_by_the_node_that_was_called() {
    let (mut table, now) = (table(4, Quotas::default()), Instant::now());
    let waits = ask(&mut table, 1, TableRequest::Wait { is_allowed: true }, now);
    assert_eq!(waits, [TableAction::Tell(1, RelayMessage::Ok { received: 0 })]);
    let incoming = RelayMessage::Incoming { circuit: CIRCUIT, caller: node(2) };
    assert_eq!(ask(&mut table, 2, call(1), now), [TableAction::Tell(1, incoming)]);
    let stranger = ask(&mut table, 3, TableRequest::Take { circuit: CIRCUIT }, now);
    assert_eq!(stranger, [TableAction::Dismiss(3, FailReason::NoCircuit)], "who knows the name alone");
    table.enter(5, node(1), ADDRESS).unwrap();
    let joined = Joined { guests: [2, 5], received: [0, 0], circuit: CIRCUIT, account: account(1) };
    let taken = ask(&mut table, 5, TableRequest::Take { circuit: CIRCUIT }, now);
    assert_eq!(taken, [TableAction::Join(joined)]);
    let again = ask(&mut table, 4, TableRequest::Take { circuit: CIRCUIT }, now);
    assert_eq!(again, [TableAction::Dismiss(4, FailReason::NoCircuit)]);
    (1..=5).for_each(|id| table.leave(id));
    assert_eq!(table.counts(), TableCounts::default());
}

#[test]
fn calls_wait_for_a_node_that_took_one_where_it_waited() {
    let (mut table, now) = (table(4, Quotas::default()), Instant::now());
    let (first, second) = (CIRCUIT, CircuitId([6; 16]));
    let called = |circuit, caller| RelayMessage::Incoming { circuit, caller: node(caller) };
    ask(&mut table, 1, TableRequest::Wait { is_allowed: true }, now);
    ask(&mut table, 2, call(1), now);
    let taken = ask(&mut table, 1, TableRequest::Take { circuit: first }, now);
    let joined = Joined { guests: [2, 1], received: [0, 0], circuit: first, account: account(1) };
    assert_eq!(taken, [TableAction::Join(joined)]);
    let to_it = TableRequest::Call { node: node(1), circuit: second };
    assert_eq!(ask(&mut table, 3, to_it, now), [], "it comes again");
    table.enter(5, node(1), ADDRESS).unwrap();
    let again = ask(&mut table, 5, TableRequest::Wait { is_allowed: true }, now);
    let told = TableAction::Tell(5, called(second, 3));
    assert_eq!(again, [TableAction::Tell(5, RelayMessage::Ok { received: 0 }), told]);
    ask(&mut table, 5, TableRequest::Take { circuit: second }, now);
    let late = now + ANSWER_LIMIT;
    assert_eq!(ask(&mut table, 4, call(1), late), [TableAction::Dismiss(4, FailReason::NotWaiting)]);
    (1..=5).for_each(|id| table.leave(id));
    assert_eq!(table.counts(), TableCounts::default());
}

#[test]
fn a_node_that_comes_again_before_it_takes_a_call_takes_it_where_it_waited() {
    let (mut table, now) = (table(2, Quotas::default()), Instant::now());
    ask(&mut table, 1, TableRequest::Wait { is_allowed: true }, now);
    ask(&mut table, 2, call(1), now);
    table.enter(3, node(1), ADDRESS).unwrap();
    let again = ask(&mut table, 3, TableRequest::Wait { is_allowed: true }, now);
    assert_eq!(again, [TableAction::Tell(3, RelayMessage::Ok { received: 0 })], "the first is not sent away");
    let joined = Joined { guests: [2, 1], received: [0, 0], circuit: CIRCUIT, account: account(1) };
    let taken = ask(&mut table, 1, TableRequest::Take { circuit: CIRCUIT }, now);
    assert_eq!(taken, [TableAction::Join(joined)]);
    assert_eq!(table.counts().waiting, 1);
}

#[test]
fn who_may_not_wait_or_is_not_there_is_refused() {
    let (mut table, now) = (table(3, Quotas::default()), Instant::now());
    let refused = ask(&mut table, 1, TableRequest::Wait { is_allowed: false }, now);
    assert_eq!(refused, [TableAction::Dismiss(1, FailReason::NotAllowed)]);
    assert_eq!(ask(&mut table, 2, call(1), now), [TableAction::Dismiss(2, FailReason::NotWaiting)]);
    ask(&mut table, 3, TableRequest::Wait { is_allowed: true }, now);
    let twice = ask(&mut table, 3, TableRequest::Wait { is_allowed: true }, now);
    assert_eq!(twice, [TableAction::Dismiss(3, FailReason::Violation)], "it asks once");
    assert_eq!(table.counts().waiting, 0);
}

#[test]
fn a_call_that_nobody_takes_fails_in_time_and_a_name_is_used_once() {
    let (mut table, now) = (table(3, Quotas::default()), Instant::now());
    ask(&mut table, 1, TableRequest::Wait { is_allowed: true }, now);
    ask(&mut table, 2, call(1), now);
    assert_eq!(ask(&mut table, 3, call(1), now), [TableAction::Dismiss(3, FailReason::Violation)]);
    assert_eq!(table.next_timeout(), Some(now + ANSWER_LIMIT));
    table.handle_timeout(now + ANSWER_LIMIT - Duration::from_millis(1));
    assert_eq!(actions(&mut table), []);
    table.handle_timeout(now + ANSWER_LIMIT);
    assert_eq!(actions(&mut table), [TableAction::Dismiss(2, FailReason::NoAnswer)]);
    assert_eq!((table.counts().calls, table.next_timeout()), (0, None));
}

#[test]
fn a_caller_that_left_is_not_joined() {
    let (mut table, now) = (table(2, Quotas::default()), Instant::now());
    ask(&mut table, 1, TableRequest::Wait { is_allowed: true }, now);
    ask(&mut table, 2, call(1), now);
    table.leave(2);
    table.enter(3, node(1), ADDRESS).unwrap();
    let taken = ask(&mut table, 3, TableRequest::Take { circuit: CIRCUIT }, now);
    assert_eq!(taken, [TableAction::Dismiss(3, FailReason::NoCircuit)]);
}

#[test]
fn a_node_that_waits_again_takes_the_place_of_its_lost_connection() {
    let (mut table, now) = (table(2, Quotas::default()), Instant::now());
    ask(&mut table, 1, TableRequest::Wait { is_allowed: true }, now);
    table.enter(3, node(1), ADDRESS).unwrap();
    let again = ask(&mut table, 3, TableRequest::Wait { is_allowed: true }, now);
    assert_eq!(again[0], TableAction::Dismiss(1, FailReason::NoAnswer));
    table.leave(1);
    let incoming = RelayMessage::Incoming { circuit: CIRCUIT, caller: node(2) };
    assert_eq!(ask(&mut table, 2, call(1), now), [TableAction::Tell(3, incoming)]);
}

#[test]
fn two_ends_find_each_other_again_and_a_stranger_finds_nothing() {
    let (mut table, now) = (table(4, Quotas::default()), Instant::now());
    assert_eq!(ask(&mut table, 1, resume(2, 7, true), now), []);
    assert_eq!(ask(&mut table, 3, resume(1, 0, true), now), [], "waits for a node 1 that asks for node 3");
    assert_eq!(ask(&mut table, 4, resume(2, 0, true), now), []);
    let joined = Joined { guests: [1, 2], received: [7, 9], circuit: CIRCUIT, account: account(1) };
    assert_eq!(ask(&mut table, 2, resume(1, 9, false), now), [TableAction::Join(joined)]);
    table.handle_timeout(now + ANSWER_LIMIT);
    let mut late = actions(&mut table);
    late.sort_by_key(|action| matches!(action, TableAction::Dismiss(4, _)));
    assert_eq!(late, [3, 4].map(|id| TableAction::Dismiss(id, FailReason::NoAnswer)));
    assert_eq!(table.counts().resumes, 0);
}

#[test]
fn one_of_two_must_be_allowed() {
    let (mut table, now) = (table(2, Quotas::default()), Instant::now());
    ask(&mut table, 1, resume(2, 0, false), now);
    let refused = ask(&mut table, 2, resume(1, 0, false), now);
    assert_eq!(refused, [1, 2].map(|id| TableAction::Dismiss(id, FailReason::NotAllowed)));
}

#[test]
fn an_end_that_comes_again_takes_the_place_of_its_lost_connection() {
    let (mut table, now) = (table(2, Quotas::default()), Instant::now());
    ask(&mut table, 1, resume(2, 3, true), now);
    table.enter(3, node(1), ADDRESS).unwrap();
    let again = ask(&mut table, 3, resume(2, 4, true), now);
    assert_eq!(again, [TableAction::Dismiss(1, FailReason::NoAnswer)]);
    table.leave(1);
    let joined = Joined { guests: [3, 2], received: [4, 0], circuit: CIRCUIT, account: account(3) };
    let joined = Joined { account: account(1), ..joined };
    assert_eq!(ask(&mut table, 2, resume(1, 0, false), now), [TableAction::Join(joined)]);
}

#[test]
fn each_quota_is_kept_and_freed() {
    let quotas = |connections, per_node, per_address| Quotas {
        connections,
        connections_per_node: per_node,
        connections_per_address: per_address,
        ..Quotas::default()
    };
    for (name, quotas) in [("all", quotas(3, 9, 9)), ("node", quotas(9, 3, 9)), ("address", quotas(9, 9, 3))]
    {
        let mut table = RelayTable::new(quotas);
        for id in 1..=3 {
            table.enter(id, node(1), ADDRESS).unwrap();
        }
        assert_eq!(table.enter(4, node(1), ADDRESS), Err(FailReason::OverQuota), "{name}");
        let elsewhere = table.enter(5, node(2), "2001:db8::1".parse().unwrap());
        assert_eq!(elsewhere.is_ok(), name != "all", "{name}");
        table.leave(1);
        assert_eq!(table.enter(6, node(1), ADDRESS), Ok(()), "{name}");
    }
}
