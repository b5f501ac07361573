//! A host's disk: a file system in a loop device, how fast it is, and others that compete for it.
//!
//! ```toml
//! [disk.receiver]
//! size = "256m"
//! file_system = "ext4"        # the default; any whose mkfs is here, or tmpfs, which needs no size
//! read = "80m"                # it is no faster than so many bytes a second
//! write = "80m"
//! writer = "50m"              # bytes a second that another program writes and syncs
//! reader = "50m"              # or reads, past what is in memory
//! load_after = "2s"           # when they begin, after the transfer does; absent: before it
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise, major, minor};
use serde::Deserialize;
use toml::Value;
use towpath_simnet::units;

use crate::error::LabError;
use crate::namespace::run;

/// The writer syncs after so much time.
const STEP: Duration = Duration::from_millis(100);
/// Its file starts again after so many steps.
const STEPS: u32 = 8;

/// Bounds on devices, for all programs.
const LIMITS: &str = "/sys/fs/cgroup/blkio";
const READ_LIMIT: &str = "blkio.throttle.read_bps_device";
const WRITE_LIMIT: &str = "blkio.throttle.write_bps_device";

/// File system without a disk.
pub const TMPFS: &str = "tmpfs";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    size: Option<String>,
    #[serde(default = "default_file_system")]
    file_system: String,
    read: Option<String>,
    write: Option<String>,
    writer: Option<String>,
    reader: Option<String>,
    load_after: Option<String>,
}

fn default_file_system() -> String {
    "ext4".into()
}

/// A mounted disk. Dropped, its load stops; the mount goes with the lab's files.
pub struct Disk {
    /// Told when the transfer begins; their end tells that the disk's use is over.
    loads: Vec<(Sender<()>, JoinHandle<()>)>,
    limits: Vec<DiskLimit>,
}

/// Another program that uses the disk.
#[derive(Clone, Copy)]
enum Load {
    Writer,
    Reader,
}

impl Disk {
    /// Makes the disk that `table` describes, and mounts it at `directory`.
    pub fn make(host: &str, table: &Value, directory: &Path) -> Result<Self, LabError> {
        let wrong = |what: String| LabError::Scenario(format!("disk.{host}: {what}"));
        let fields: Fields =
            table.clone().try_into().map_err(|error: toml::de::Error| wrong(error.to_string()))?;
        let size = fields.size.map(|text| units::bytes(&text)).transpose().map_err(wrong)?;
        let bytes = |text: &Option<String>| text.as_deref().map(units::bytes).transpose();
        let after = fields.load_after.as_deref().map(units::duration).transpose().map_err(wrong)?;
        let is_plain = fields.file_system.chars().all(|c| c.is_ascii_alphanumeric());
        if !is_plain {
            return Err(wrong(format!("`{}` is no file system", fields.file_system)));
        }
        match (&fields.file_system[..], size) {
            (TMPFS, size) => mount_memory(size, directory)?,
            (_, None) => return Err(wrong("it needs a size".into())),
            (file_system, Some(size)) => mount(file_system, size, directory)?,
        }
        let mut disk = Self { loads: Vec::new(), limits: Vec::new() };
        for (file, rate) in [(READ_LIMIT, &fields.read), (WRITE_LIMIT, &fields.write)] {
            if let Some(rate) = bytes(rate).map_err(wrong)? {
                disk.limits.push(DiskLimit::set(file, directory, rate)?);
            }
        }
        for (load, rate) in [(Load::Writer, &fields.writer), (Load::Reader, &fields.reader)] {
            if let Some(rate) = bytes(rate).map_err(wrong)? {
                disk.loads.push(load.start(directory, rate, after)?);
            }
        }
        Ok(disk)
    }

    /// The transfer begins.
    pub fn begin(&self) {
        for (begin, _) in &self.loads {
            // Its load may be over, with a full disk.
            let _ = begin.send(());
        }
    }

    /// True if reads come from the disk rather than from memory.
    pub fn is_limited(&self) -> bool {
        !self.limits.is_empty()
    }
}

/// Lets go of what memory holds of the files below, so that the next to read them needs the disk.
pub fn forget(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.is_dir() {
        let file = File::open(path)?;
        file.sync_all()?;
        return Ok(fadvise(&file, 0, None, Advice::DontNeed)?);
    }
    fs::read_dir(path)?.try_for_each(|entry| forget(&entry?.path()))
}

/// A bound on a disk's throughput for everybody. Dropped, it is lifted.
struct DiskLimit {
    file: PathBuf,
    device: String,
}

impl DiskLimit {
    fn set(file: &str, directory: &Path, rate: u64) -> Result<Self, LabError> {
        let device = fs::metadata(directory).map_err(LabError::io("reading", directory))?.dev();
        let device = format!("{}:{}", major(device), minor(device));
        let limit = Self { file: Path::new(LIMITS).join(file), device };
        limit.write(rate).map_err(LabError::tried(format!(
            "limiting a disk by {}, which only the first kind of control groups has",
            limit.file.display()
        )))?;
        Ok(limit)
    }

    fn write(&self, rate: u64) -> io::Result<()> {
        fs::write(&self.file, format!("{} {rate}", self.device))
    }
}

impl Drop for DiskLimit {
    fn drop(&mut self) {
        // Without its device, it has no effect.
        let _ = self.write(0);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A load that waits for the disk is done sooner without bounds.
        self.limits.clear();
        for (begin, thread) in self.loads.drain(..) {
            drop(begin);
            let _ = thread.join();
        }
    }
}

fn mount_memory(size: Option<u64>, directory: &Path) -> Result<(), LabError> {
    let size = size.map_or_else(|| "size=90%".into(), |size| format!("size={size}"));
    run(Command::new("mount").args(["-t", TMPFS, "-o", &size, TMPFS]).arg(directory)).map(drop)
}

fn mount(file_system: &str, size: u64, directory: &Path) -> Result<(), LabError> {
    let image = directory.with_extension("image");
    let made = File::create_new(&image).and_then(|file| file.set_len(size));
    made.map_err(LabError::io("making", &image))?;
    run(Command::new(format!("mkfs.{file_system}")).arg("-q").arg(&image))?;
    run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(directory)).map(drop).map_err(|error| {
        let LabError::Command { command, said } = error else { return error };
        let said =
            format!("{said}; a disk needs loop devices (/dev/loop-control), which containers often lack");
        LabError::Command { command, said }
    })
}

impl Load {
    /// Starts it, or lets it wait for the transfer's beginning and then so long.
    fn start(
        self,
        directory: &Path,
        rate: u64,
        after: Option<Duration>,
    ) -> Result<(Sender<()>, JoinHandle<()>), LabError> {
        let (begin, begun) = channel();
        let path = directory.join(if matches!(self, Self::Writer) { ".writer" } else { ".reader" });
        let data = vec![0x55; (rate as f64 * STEP.as_secs_f64()) as usize];
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create_new(true).open(&path);
        let mut file = opened.map_err(LabError::io("making", &path))?;
        if matches!(self, Self::Reader) {
            (0..STEPS).try_for_each(|_| file.write_all(&data)).map_err(LabError::io("writing", &path))?;
            forget(&path).map_err(LabError::io("writing", &path))?;
        }
        let thread = thread::spawn(move || {
            // A full or broken disk has nothing to compete for.
            let _ = self.run(&mut file, data, &begun, after);
        });
        Ok((begin, thread))
    }

    fn run(
        self,
        file: &mut File,
        mut data: Vec<u8>,
        begun: &Receiver<()>,
        after: Option<Duration>,
    ) -> io::Result<()> {
        if let Some(after) = after
            && (begun.recv().is_err() || is_over(begun, after))
        {
            return Ok(());
        }
        let start = Instant::now();
        file.rewind()?;
        for step in 1.. {
            match self {
                Self::Writer => {
                    file.write_all(&data)?;
                    file.sync_data()?;
                }
                Self::Reader => {
                    file.read_exact(&mut data)?;
                    fadvise(&*file, 0, None, Advice::DontNeed)?;
                }
            }
            if step % STEPS == 0 {
                file.rewind()?;
            }
            if is_over(begun, (STEP * step).saturating_sub(start.elapsed())) {
                break;
            }
        }
        Ok(())
    }
}

/// Waits, but not beyond the end.
fn is_over(begun: &Receiver<()>, rest: Duration) -> bool {
    let deadline = Instant::now() + rest;
    loop {
        match begun.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => return true,
        }
    }
}
