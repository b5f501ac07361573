//! The help texts are part of the public interface: `UPDATE_SNAPSHOTS=1` writes them anew, and the
//! difference is looked at as that of any other source.

use std::fmt::Write;
use std::path::Path;

use crate::environment::{TOW, TestEnvironment};
use crate::runner::situations;

situations![
    the_help_is_as_agreed_on,
    the_manual_and_the_completions_are_printed,
    every_command_has_a_page_of_its_own,
    a_page_has_the_sections_of_a_manual_page_in_their_order,
    a_reader_of_a_page_may_go_away,
    installing_puts_everything_in_its_place,
    a_flag_that_is_refused_names_itself_and_another_way,
];

const COMMANDS: [&str; 18] = [
    "cp",
    "sync",
    "share",
    "get",
    "publish",
    "put",
    "daemon",
    "rendezvous",
    "relay",
    "vault",
    "ls",
    "done",
    "gc",
    "index",
    "status",
    "doctor",
    "completions",
    "man",
];

/// Commands of a group, each with a help of its own.
const INNER: [[&str; 2]; 1] = [["vault", "serve"]];

fn all_help(env: &TestEnvironment) -> String {
    let mut all = String::new();
    let calls = std::iter::once(Vec::new()).chain(COMMANDS.map(|command| vec![command]));
    for call in calls.chain(INNER.map(Vec::from)) {
        let words: Vec<&str> = call.into_iter().chain(["--help"]).collect();
        let text = env.sender.tow(&words).variable("COLUMNS", "100").end().with(0).text();
        writeln!(all, "$ tow {}\n{text}", words.join(" ")).unwrap();
    }
    all
}

fn the_help_is_as_agreed_on() {
    let env = TestEnvironment::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/help.txt");
    let now = all_help(&env);
    let root = now.split("\n$ tow cp").next().unwrap_or_default();
    for command in COMMANDS {
        assert!(root.contains(&format!("\n  {command} ")), "{command} is not in the list");
    }
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let agreed = std::fs::read_to_string(&path).unwrap();
    for (number, (now, agreed)) in now.lines().zip(agreed.lines()).enumerate() {
        assert_eq!(now, agreed, "line {} of {}; UPDATE_SNAPSHOTS=1 if meant", number + 1, path.display());
    }
    assert_eq!(
        now.lines().count(),
        agreed.lines().count(),
        "{}; UPDATE_SNAPSHOTS=1 if meant",
        path.display()
    );
}

fn the_manual_and_the_completions_are_printed() {
    let env = TestEnvironment::new();
    let page = env.sender.tow(["man"]).end().with(0).text();
    assert!(page.contains(".TH tow 1"), "{}", &page[..page.len().min(200)]);
    for (command, word) in [("get", "TICKET"), ("sync", "itemize"), ("cp", "preserve")] {
        let page = env.sender.tow(["man", command]).end().with(0).text();
        assert!(page.contains(word), "{}", &page[..page.len().min(200)]);
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = env.sender.tow(["completions", shell]).end().with(0).text();
        for word in ["limit-rate", "max-delete", "no-preserve", "no-owner"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        assert!(!script.contains("inplace"), "{shell}: flags that are refused are not offered");
    }
}

fn every_command_has_a_page_of_its_own() {
    let env = TestEnvironment::new();
    env.sender.tow(["man", "--write-to", "man1"]).end().with(0);
    let pages = crate::trees::names(&env.sender.path("man1"));
    let expected = COMMANDS.iter().map(|command| format!("tow-{command}.1")).chain(["tow.1".into()]);
    assert_eq!(pages, expected.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>());
    for page in pages {
        let text = std::fs::read_to_string(env.sender.path("man1").join(&page)).unwrap();
        let name = page.trim_end_matches(".1");
        assert!(text.contains(&format!(".TH {name} 1")), "{page}: {}", &text[..text.len().min(200)]);
        // All that the help tells, and nothing that is refused.
        assert!(text.contains("\\-\\-json") || page == "tow.1" && text.contains("json"), "{page}");
        assert!(!text.contains("inplace"), "{page}");
    }
}

fn a_page_has_the_sections_of_a_manual_page_in_their_order() {
    let env = TestEnvironment::new();
    for command in COMMANDS {
        let page = env.sender.tow(["man", command]).end().with(0).text();
        let version = format!("\"tow {}\" Towpath", env!("CARGO_PKG_VERSION"));
        assert!(page.contains(&version), "{command}: {}", &page[..page.len().min(200)]);
        let found: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        let order = [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "ARGUMENTS",
            "OPTIONS",
            "\"EXIT STATUS\"",
            "ENVIRONMENT",
            "FILES",
            "EXAMPLES",
            "\"SEE ALSO\"",
        ];
        let usual: Vec<&str> = found.iter().copied().filter(|title| order.contains(title)).collect();
        let expected: Vec<&str> = order.into_iter().filter(|title| usual.contains(title)).collect();
        assert_eq!(usual, expected, "{command}: {found:?}");
        let missing = order.iter().filter(|title| !found.contains(title)).collect::<Vec<_>>();
        assert!(
            missing.iter().all(|title| ["ARGUMENTS", "EXAMPLES"].contains(title)),
            "{command}: {missing:?}"
        );
        assert!(found.iter().all(|title| !title.contains('-') && *title != "EXTRA"), "{command}: {found:?}");
    }
    let page = env.sender.tow(["man", "sync"]).end().with(0).text();
    assert!(page.contains("lptgoHAX"), "what is carried over without a flag is told as it is written");
}

fn a_reader_of_a_page_may_go_away() {
    let env = TestEnvironment::new();
    let script = format!("'{TOW}' man sync | head -1; exit ${{PIPESTATUS[0]}}");
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", &script]).env("TOW_HOME", env.sender.path("home"));
    let told = shell.output().unwrap();
    assert_eq!((told.status.code(), String::from_utf8_lossy(&told.stderr)), (Some(0), "".into()));
}

fn installing_puts_everything_in_its_place() {
    let env = TestEnvironment::new();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = env.dir().join("root");
    let script = std::process::Command::new("bash")
        .arg(repository.join("scripts/install.sh"))
        .args([TOW.as_ref(), "/opt/tow".as_ref(), root.as_os_str()])
        .output()
        .unwrap();
    assert!(script.status.success(), "{}", String::from_utf8_lossy(&script.stderr));
    let prefix = root.join("opt/tow");
    for file in [
        "bin/tow",
        "share/man/man1/tow.1",
        "share/man/man1/tow-sync.1",
        "share/bash-completion/completions/tow",
        "share/zsh/site-functions/_tow",
        "share/fish/vendor_completions.d/tow.fish",
        "share/doc/tow/config.toml",
        "lib/systemd/user/tow-peers.socket",
        "lib/systemd/user/tow-rendezvous.service",
        "lib/systemd/user/tow-relay.service",
        "lib/systemd/user/tow-vault.service",
    ] {
        assert!(prefix.join(file).metadata().unwrap().len() > 0, "{file}");
    }
    let unit = std::fs::read_to_string(prefix.join("lib/systemd/user/tow.service")).unwrap();
    assert!(unit.contains("ExecStart=/opt/tow/bin/tow -q daemon\n"), "{unit}");
}

fn a_flag_that_is_refused_names_itself_and_another_way() {
    let env = TestEnvironment::new();
    for (words, says) in [
        (["sync", "-avR", "a", "b"], "tow sync has no --relative (-R): name paths"),
        (["cp", "-P", "22", "b"], "-e 'ssh -p PORT'"),
        (["sync", "a", "b", "--inplace"], "Usage: tow sync"),
        (["sync", "a", "--max-size=1x", "b"], "--max-size: '1x' is not a size"),
    ] {
        let ended = env.sender.tow(words).end().with(2);
        assert!(ended.err.contains(says), "{}", ended.err);
    }
    let help = env.sender.tow(["sync", "-h"]).end().with(0).text();
    assert!(help.contains("--itemize-changes"), "{help}");
}
