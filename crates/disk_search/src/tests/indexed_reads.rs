//! dsync's Table 2: a file of which the index knows all chunks is read chunk by chunk, or in one pass.

use std::time::Instant;

use rustix::fs::{Advice, fadvise};

use super::*;

/// Location of each chunk of `data`, which is `file`.
fn located(data: &[u8], file: &Candidate) -> Vec<IndexedChunks> {
    let (mut chunker, mut rest, mut offset, mut located) = (CUT_BY.chunker().unwrap(), data, 0, Vec::new());
    let path: Arc<Path> = file.path().into();
    let mut add = |chunk: &[u8]| {
        let (path, len) = (Arc::clone(&path), chunk.len() as u32);
        located.push((ChunkHash::of(chunk), Location { path, stamp: file.stamp, offset, len }));
        offset += u64::from(len);
    };
    while let Some(chunk) = chunker.cut(&mut rest) {
        add(chunk);
    }
    while let Some(chunk) = chunker.finish() {
        add(chunk);
    }
    located
}

/// Has the kernel forget what it holds of a file.
fn forget_cached(path: &Path) {
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

/// `MEGABYTES` says how many there are, `FOLDER` on which disk.
#[test]
#[ignore = "a measurement of the disk"]
fn reads_of_an_indexed_file() {
    let megabytes = std::env::var("MEGABYTES").map_or(10, |text| text.parse().unwrap());
    let folder = std::env::var_os("FOLDER").map_or_else(std::env::temp_dir, PathBuf::from);
    let disk = Disk::within(tempfile::tempdir_in(folder).unwrap());
    let data = noise(7, megabytes * 1_000_000);
    let file = disk.write("file", &data);
    let in_order = located(&data, &file);
    let mut in_no_order = in_order.clone();
    fastrand::Rng::with_seed(8).shuffle(&mut in_no_order);
    let lengths: HashMap<_, _> = in_order.iter().map(|(hash, place)| (*hash, place.len)).collect();
    let wanted = move |hash: &ChunkHash| lengths.get(hash).copied();
    let read = |chunks: &[IndexedChunks]| {
        let mut found = 0;
        let mut give = |chunks: Vec<FoundChunk>| {
            found += chunks.len();
            true
        };
        cache_read(&disk.store, chunks, &wanted, &Cancel::default(), &mut give).0.unwrap();
        found
    };
    let one_by_one = |chunks: &[IndexedChunks]| chunks.iter().map(|it| read(std::slice::from_ref(it))).sum();
    let took = |what: &str, read: &dyn Fn() -> usize| {
        forget_cached(&file.path());
        let start = Instant::now();
        assert_eq!(read(), in_order.len());
        println!("{what}: {:.3} s", start.elapsed().as_secs_f64());
    };
    println!("{} chunks of {megabytes} MB", in_order.len());
    for _ in 0..3 {
        took("one by one, in the file's order", &|| one_by_one(&in_order));
        took("one by one, in no order", &|| one_by_one(&in_no_order));
        took("in one pass", &|| read(&in_no_order));
    }
}
