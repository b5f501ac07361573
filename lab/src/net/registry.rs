//! Labs that there are on this machine, and how nothing of them is left behind.
//!
//! A lab is a directory here. As long as its process lives, that holds a lock on the file `owner` in
//! it; the kernel gives the lock up when the process ends in whatever way. So a lab whose lock is free
//! is an abandoned one, and the next that comes removes it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::LabError;
use crate::namespace::{Namespace, run};

/// All labs.
const LABS: &str = "/run/towpath-lab";
/// Before the names of their namespaces.
const PREFIX: &str = "towpath";
/// Time that what still runs in a lab has to end by itself when it is told to.
const GRACE: Duration = Duration::from_secs(2);

/// The labs of this process that are up.
static OWN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A name that belongs to this process, and all that is registered under it. Dropped, it is removed.
pub struct Registration {
    name: String,
    /// Holds the lock.
    _owner: File,
}

impl Registration {
    /// Takes the first free name, after abandoned labs are removed.
    pub fn new() -> Result<Self, LabError> {
        let _guard = guard()?;
        remove_abandoned()?;
        let name = (1..).map(|number| format!("lab{number}")).find(|name| !directory(name).exists());
        let name = name.unwrap_or_default();
        let directory = directory(&name);
        fs::create_dir(&directory).map_err(LabError::io("making", &directory))?;
        let path = directory.join("owner");
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
        let mut owner = options.map_err(LabError::io("making", &path))?;
        owner.lock().map_err(LabError::io("locking", &path))?;
        write!(owner, "{}", std::process::id()).map_err(LabError::io("writing", &path))?;
        own(|labs| labs.push(name.clone()));
        Ok(Self { name, _owner: owner })
    }

    /// The lab's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Path of its socket.
    pub fn socket(&self) -> PathBuf {
        socket(&self.name)
    }

    /// Makes the namespace of a host.
    pub fn namespace(&self, host: &str) -> Result<Namespace, LabError> {
        Namespace::add(format!("{}{host}", prefix(&self.name)))
    }

    /// Makes a directory for its files, removed with it.
    pub fn files(&self) -> Result<PathBuf, LabError> {
        let made = tempfile::Builder::new().prefix(&format!("towpath-{}-", self.name)).tempdir();
        let made = made.map_err(LabError::tried("making a temporary directory"))?.keep();
        let note = directory(&self.name).join("files");
        fs::write(&note, made.as_os_str().as_encoded_bytes()).map_err(LabError::io("writing", &note))?;
        Ok(made)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        remove(&self.name);
        own(|labs| labs.retain(|lab| *lab != self.name));
    }
}

/// Takes down this process's labs when it is told to end (^C, a closed terminal, `kill`), before it does.
pub fn remove_on_signals() -> Result<(), LabError> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(LabError::tried("catching signals"))?;
    thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let labs = own(|labs| labs.clone());
            labs.iter().for_each(|lab| remove(lab));
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Removes the labs whose process is gone, and names them.
pub fn clean() -> Result<Vec<String>, LabError> {
    let _guard = guard()?;
    remove_abandoned()
}

/// The labs that are up.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(LABS).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.path().is_dir());
    let mut names: Vec<_> = directories.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The namespace of a host of a lab that is up.
pub fn find(lab: &str, host: &str) -> Result<Namespace, LabError> {
    if !directory(lab).is_dir() {
        return Err(LabError::NoLab(lab.into()));
    }
    let prefix = prefix(lab);
    let hosts = Namespace::with_prefix(&prefix);
    let names: Vec<&str> = hosts.iter().map(|it| &it.name()[prefix.len()..]).collect();
    match names.iter().position(|name| *name == host) {
        Some(at) => Ok(hosts[at].clone()),
        None => {
            let said = format!("there is no host `{host}`, but {}", names.join(", "));
            Err(LabError::Refused { lab: lab.into(), said })
        }
    }
}

/// The socket of a lab that is up.
pub fn socket(lab: &str) -> PathBuf {
    directory(lab).join("control")
}

/// Tells the process of a lab to take it down, and waits until it is gone.
pub fn end(lab: &str) -> Result<(), LabError> {
    let directory = directory(lab);
    let owner = fs::read_to_string(directory.join("owner")).ok();
    let process = owner.and_then(|text| Pid::from_raw(text.parse().ok()?));
    let process = process.ok_or_else(|| LabError::NoLab(lab.into()))?;
    let ended = kill_process(process, Signal::TERM);
    ended.map_err(|error| LabError::tried(format!("ending the process of `{lab}`"))(error.into()))?;
    let start = Instant::now();
    while directory.exists() {
        if start.elapsed() > 5 * GRACE {
            let said = format!("process {} does not take it down", process.as_raw_nonzero());
            return Err(LabError::Refused { lab: lab.into(), said });
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn own<T>(work: impl FnOnce(&mut Vec<String>) -> T) -> T {
    work(&mut OWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

fn directory(lab: &str) -> PathBuf {
    Path::new(LABS).join(lab)
}

fn prefix(lab: &str) -> String {
    format!("{PREFIX}-{lab}-")
}

/// Names are given and taken away by one process at a time.
fn guard() -> Result<File, LabError> {
    fs::create_dir_all(LABS).map_err(LabError::io("making", Path::new(LABS)))?;
    let path = Path::new(LABS).join("guard");
    let file = File::create(&path).map_err(LabError::io("making", &path))?;
    file.lock().map_err(LabError::io("locking", &path))?;
    Ok(file)
}

fn remove_abandoned() -> Result<Vec<String>, LabError> {
    let abandoned: Vec<String> = names().into_iter().filter(|lab| is_abandoned(lab)).collect();
    abandoned.iter().for_each(|lab| remove(lab));
    Ok(abandoned)
}

fn is_abandoned(lab: &str) -> bool {
    match File::open(directory(lab).join("owner")) {
        Ok(owner) => !matches!(owner.try_lock(), Err(TryLockError::WouldBlock)),
        Err(_) => true,
    }
}

/// Takes down all that bears the lab's name: processes, mounts, namespaces, files. What is gone
/// already is no mistake, so this can be done twice, and after a half-made lab.
fn remove(lab: &str) {
    let namespaces = Namespace::with_prefix(&prefix(lab));
    // Until the end, or what was ended for the last time could be that of another lab.
    let held: Vec<File> = namespaces.iter().filter_map(Namespace::open).collect();
    let inodes: Vec<u64> = held.iter().filter_map(|it| Some(it.metadata().ok()?.ino())).collect();
    end_processes(&inodes);
    if let Ok(files) = fs::read_to_string(directory(lab).join("files")) {
        unmount_below(&files);
        let _ = fs::remove_dir_all(files);
    }
    for namespace in namespaces {
        let _ = namespace.delete();
    }
    // Those that entered while the others were ended; nobody can any more.
    end_processes(&inodes);
    let _ = fs::remove_dir_all(directory(lab));
}

/// Ends what runs in these namespaces: first politely, then for good.
fn end_processes(inodes: &[u64]) {
    let start = Instant::now();
    let mut signal = Signal::TERM;
    loop {
        let processes = processes_in(inodes);
        if processes.is_empty() || start.elapsed() > 2 * GRACE {
            return;
        }
        if start.elapsed() > GRACE {
            signal = Signal::KILL;
        }
        for process in processes {
            let _ = kill_process(process, signal);
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn processes_in(inodes: &[u64]) -> Vec<Pid> {
    if inodes.is_empty() {
        return Vec::new();
    }
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_in = |path: PathBuf| fs::metadata(path).is_ok_and(|it| inodes.contains(&it.ino()));
    let inside = entries.filter(|entry| is_in(entry.path().join("ns/net")));
    inside.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// Detaches the file systems below a directory; a loop device that was made for one goes with it.
fn unmount_below(directory: &str) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    for place in places.filter(|place| Path::new(place).starts_with(directory)) {
        let _ = run(Command::new("umount").args(["--lazy", place]));
    }
}
