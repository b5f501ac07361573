//! Scenario files: what they mean, and what is said of mistakes.

use std::time::Duration;

use super::*;

fn two(rest: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse(&format!("about = 'a test'\nhosts = ['a', 'b']\n{rest}"))
}

const WIRE: &str = "[[link]]\nname = 'wire'\nbetween = ['a', 'b']\nrate = '100mbit'\ndelay = '16.5ms'\n";

#[test]
fn directions_share_what_is_not_told_apart() {
    let scenario = two(&format!("{WIRE}loss = 0.01\nback = {{ rate = '10mbit' }}")).unwrap();
    let link = &scenario.links[0];
    assert_eq!((link.forth.rate, link.back.rate), (Some(100_000_000), Some(10_000_000)));
    assert_eq!(link.back.delay, Duration::from_micros(16_500));
    assert_eq!((link.forth.loss, link.back.loss), (0.01, 0.01));
}

#[test]
fn changes_come_in_the_order_of_their_times() {
    let changes = "[[change]]\nat = '4s'\nlink = 'wire'\ncut = false\n\
                   [[change]]\nat = '2s'\nlink = 'wire'\ncut = true\nway = 'forth'\n";
    let scenario = two(&format!("{WIRE}{changes}")).unwrap();
    let mut link = scenario.links[0].clone();
    let first = &scenario.changes[0];
    link.apply(first.way, &first.params);
    assert!(link.forth.cut && !link.back.cut);
    assert_eq!(first.at, Duration::from_secs(2));
}

#[test]
fn a_case_changes_all_links_or_one() {
    let cases = "[[link]]\nname = 'second'\nbetween = ['a', 'b']\n\
                 [[case]]\nname = 'slow'\nlink.all = { rate = '1mbit' }\nlink.second = { rate = '2mbit' }\n";
    let scenario = two(&format!("{WIRE}{cases}")).unwrap();
    let rates: Vec<_> = scenario.cases[0].links.iter().map(|link| link.back.rate).collect();
    assert_eq!(rates, [Some(1_000_000), Some(2_000_000)]);
    assert_eq!(scenario.links[0].forth.rate, Some(100_000_000), "the scenario itself stays");
}

#[test]
fn a_case_says_what_differs_of_a_disk() {
    let disk = |host| {
        two(&format!(
            "{WIRE}[disk.b]\nread = '40m'\n[[case]]\nname = 'busy'\ndisk.{host} = {{ reader = '36m' }}\n"
        ))
    };
    let case = &disk("b").unwrap().cases[0];
    assert_eq!(case.disk["b"]["reader"].as_str(), Some("36m"));
    assert!(disk("c").unwrap_err().to_string().contains("there is no host `c`"));
}

#[test]
fn a_star_and_an_overlay_make_hosts_and_links() {
    let star = Scenario::parse(
        "about = ''\nhosts = ['hub']\n[[star]]\ncentre = 'hub'\nleaf = 'r'\ncount = 1000\nrate = '1mbit'",
    );
    let star = star.unwrap();
    assert_eq!((star.hosts.len(), star.links.len()), (1001, 1000));
    assert_eq!(star.host("r1000"), Some(1000));

    let rates = "rates = [['', '1mbit', ''], ['2mbit', '', '3mbit'], ['', '3mbit', '']]";
    let overlay = Scenario::parse(&format!(
        "about = ''\nhosts = ['a', 'b', 'c']\n[[overlay]]\nhosts = ['a', 'b', 'c']\n{rates}"
    ));
    let links = overlay.unwrap().links;
    assert_eq!(links.iter().map(|link| &link.name[..]).collect::<Vec<_>>(), ["a-b", "b-c"]);
    assert_eq!((links[0].forth.rate, links[0].back.rate), (Some(1_000_000), Some(2_000_000)));
}

#[test]
fn mistakes_are_told_with_their_place() {
    let cases = [
        ("[[link]]\nbetween = ['a', 'c']", "link 0: there is no host `c`"),
        ("[[link]]\nbetween = ['a', 'a']", "link 0: a link needs two hosts"),
        ("[[link]]\nbetween = ['a', 'b']\nrate = 'fast'", "link 0: `fast` is not a rate like 100mbit"),
        ("[[link]]\nbetween = ['a', 'b']\nburst = 0", "link 0: burst is packets in a row, 1 or more"),
        ("[[change]]\nat = '1s'\nlink = 'x'", "change 0: there is no link `x`"),
        ("[[star]]\ncentre = 'a'\nleaf = 'b'\ncount = 1000000", "star 0: "),
        ("[[overlay]]\nhosts = ['a', 'b']\nrates = []", "overlay 0: rates needs a row"),
        ("[disk.c]", "disk.c: there is no host `c`"),
    ];
    for (text, expected) in cases {
        let error = two(text).unwrap_err().to_string();
        let is_long_star = expected == "star 0: " && error.contains("hosts");
        assert!(error.starts_with(expected) || is_long_star, "{text}: {error}");
    }
    for text in ["[[link]]\nbetween = ['a', 'b']\nrat = 1", "colour = 'red'", "hosts = ", "[[link]]"] {
        assert!(two(text).is_err(), "{text}");
    }
}
