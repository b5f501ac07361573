//! Rate at which a file in the page cache is cut into chunks that are hashed, and its cost in processor time.
//!
//! `cargo bench -p towpath-store --bench cutting [-- DIR]`; the file of 1 GiB is made in DIR, by default /tmp.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use towpath_content::chunking::Parameters;
use towpath_content::recipe::Descriptor;
use towpath_store::{cut_and_hash_open_file, cut_open_file};

const MIB: u64 = 1 << 10;

/// Seconds of processor time that this process has taken, on all cores.
fn cpu_time() -> f64 {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Times one pass, which counts its chunks.
fn pass(what: &str, run: impl FnOnce(&mut dyn FnMut(&[Descriptor], &[u8]) -> io::Result<()>)) {
    let (start, before, mut count) = (Instant::now(), cpu_time(), 0);
    run(&mut |chunks, _| {
        count += chunks.len();
        Ok(())
    });
    let (took, cpu) = (start.elapsed().as_secs_f64(), cpu_time() - before);
    // A bench whose reader went away has nothing left to do.
    let _ = writeln!(io::stdout(), "{what:36} {took:6.3} s, processor {cpu:6.3} s, {count} chunks");
}

fn make_file(path: &Path) -> io::Result<File> {
    let (mut file, mut block) = (File::create(path)?, vec![0; 1 << 20]);
    let mut noise = blake3::Hasher::new().finalize_xof();
    for _ in 0..MIB {
        noise.fill(&mut block);
        file.write_all(&block)?;
    }
    File::open(path)
}

fn main() {
    let place = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let home = tempfile::tempdir_in(place.map_or_else(std::env::temp_dir, PathBuf::from)).expect("a folder");
    let path = home.path().join("file");
    let file = make_file(&path).expect("a file of 1 GiB");
    let rabin = Parameters::Rabin { min: 4 << 10, avg: 16 << 10, max: 64 << 10 };
    let fixed = Parameters::Fixed { len: 16 << 10 };
    for (what, parameters) in [("gear", Parameters::DEFAULT), ("Rabin", rabin), ("fixed", fixed)] {
        pass(&format!("{what}, 1 GiB"), |take| {
            cut_open_file(&file, &path, &parameters, take).expect("cut");
        });
    }
    pass("gear, 1 GiB, and the file's name", |take| {
        cut_and_hash_open_file(&file, &path, &Parameters::DEFAULT, take).expect("cut");
    });
}
