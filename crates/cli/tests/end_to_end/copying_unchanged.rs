//! A large tree that is the same at both sides: no file of it is opened.

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::environment::{TOW, TestEnvironment};
use crate::machinery::tool;
use crate::runner::situations;
use crate::sshd::{Route, Way};
use crate::trees::names;

situations![nobody_may_open_the_files_and_nobody_tries, no_system_call_of_either_side_opens_a_file,];

const DIRECTORIES: usize = 100;
const FILES: usize = 1000;

/// The same tree of so many files at both sides, whose files nobody may open but root.
fn make_both(env: &TestEnvironment, directories: usize) {
    for root in [env.sender.path("tree"), env.receiver.path("tree")] {
        for directory in 0..directories {
            make_directory(&root.join(directory.to_string()));
        }
    }
}

fn make_directory(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    for number in 0..FILES {
        let file = File::create(dir.join(format!("leaf-{number}"))).unwrap();
        file.set_times(FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(1 << 30))).unwrap();
        file.set_permissions(Permissions::from_mode(0o0)).unwrap();
    }
}

/// Every attempt would fail, and be an error.
fn nobody_may_open_the_files_and_nobody_tries() {
    let env = TestEnvironment::new_in_memory();
    make_both(&env, DIRECTORIES);
    let route = Route::new(&env, Way::Push).without_rights();
    let summary = route.copy("sync --json --delete", "tree/", "tree/").end().summary();
    assert_eq!(summary.0["seen"]["files"], DIRECTORIES * FILES, "{}", summary.0);
    assert_eq!(summary.number("transferred"), 0, "{}", summary.0);
}

/// Directories are opened, and the trace shows it: so it would show a file.
fn no_system_call_of_either_side_opens_a_file() {
    let directories = 10;
    let env = TestEnvironment::new_in_memory();
    make_both(&env, directories);
    let mut route = Route::new(&env, Way::Push);
    for way in [Way::Push, Way::Pull, Way::Here] {
        route.turn(way);
        let trace = format!("trace of {way:?}");
        let strace = tool("strace").display().to_string();
        let flags = ["-ff", "-qq", "--seccomp-bpf", "-e", "trace=open,openat,openat2", "-o"];
        let words = [strace].into_iter().chain(flags.map(Into::into));
        route.program = words.chain([env.dir().join(&trace).display().to_string(), TOW.into()]).collect();
        route.copy("sync --delete", "tree/", "tree/").end().with(0);
        route.wait_for_the_other_side();
        let opens = opens(&env, &trace);
        let opened = |name: &str| opens.iter().filter(|line| line.contains(name)).count();
        assert_eq!(opened("leaf-"), 0, "{way:?}");
        (0..directories).for_each(|name| assert!(opened(&format!("\"{name}\"")) >= 2, "{way:?}: {name}"));
    }
}

/// The lines of all processes whose traces' names begin so. A handle with `O_PATH` names a file and
/// can't read it.
fn opens(env: &TestEnvironment, trace: &str) -> Vec<String> {
    let files = names(env.dir()).into_iter().filter(|name| name.starts_with(trace));
    let text: String = files.map(|name| fs::read_to_string(env.dir().join(name)).unwrap()).collect();
    text.lines().filter(|line| !line.contains("O_PATH")).map(Into::into).collect()
}
