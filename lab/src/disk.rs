//! A host's disk: a file system in a loop device, and a writer that competes for it.
//!
//! ```toml
//! [disk.receiver]
//! size = "256m"
//! file_system = "ext4"        # the default; any whose mkfs is here
//! writer = "50m"              # bytes a second that another program writes and syncs
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Deserialize;
use toml::Value;
use towpath_simnet::units;

use crate::error::LabError;
use crate::net::namespace::run;

/// The writer syncs after so much time.
const STEP: Duration = Duration::from_millis(100);
/// Its file starts again after so many steps.
const STEPS: u32 = 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    size: String,
    #[serde(default = "default_file_system")]
    file_system: String,
    writer: Option<String>,
}

fn default_file_system() -> String {
    "ext4".into()
}

/// A mounted disk. Dropped, its writer stops; the mount goes with the lab's files.
pub struct Disk {
    /// Nothing is sent over it: its end tells.
    stop: Option<Sender<()>>,
    writer: Option<JoinHandle<()>>,
}

impl Disk {
    /// Makes the disk that `table` describes, and mounts it at `directory`.
    pub fn make(host: &str, table: &Value, directory: &Path) -> Result<Self, LabError> {
        let wrong = |what: String| LabError::Scenario(format!("disk.{host}: {what}"));
        let fields: Fields =
            table.clone().try_into().map_err(|error: toml::de::Error| wrong(error.to_string()))?;
        let size = units::bytes(&fields.size).map_err(wrong)?;
        let rate = fields.writer.map(|text| units::bytes(&text)).transpose().map_err(wrong)?;
        let is_plain = fields.file_system.chars().all(|c| c.is_ascii_alphanumeric());
        if !is_plain {
            return Err(wrong(format!("`{}` is no file system", fields.file_system)));
        }
        mount(&fields.file_system, size, directory)?;
        let (stop, stopped) = channel();
        let writer = rate.map(|rate| start_writer(directory, rate, stopped)).transpose()?;
        Ok(Self { stop: Some(stop), writer })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
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

fn start_writer(directory: &Path, rate: u64, stopped: Receiver<()>) -> Result<JoinHandle<()>, LabError> {
    let path = directory.join(".writer");
    let opened = OpenOptions::new().write(true).create_new(true).open(&path);
    let mut file = opened.map_err(LabError::io("making", &path))?;
    let data = vec![0x55; (rate as f64 * STEP.as_secs_f64()) as usize];
    Ok(thread::spawn(move || {
        // A full or broken disk has nothing to compete for.
        let _ = write_on(&mut file, &data, &stopped);
    }))
}

fn write_on(file: &mut File, data: &[u8], stopped: &Receiver<()>) -> io::Result<()> {
    let start = Instant::now();
    for step in 1.. {
        if step % STEPS == 0 {
            file.rewind()?;
        }
        file.write_all(data)?;
        file.sync_data()?;
        let rest = (STEP * step).saturating_sub(start.elapsed());
        if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    Ok(())
}
