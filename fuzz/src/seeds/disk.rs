//! Records and files of this service, and what programs of this machine ask it for.

use serde_json::json;
use towpath_store::disk::fuzzing;

use super::content::{CONTENT, LIVE, recipe};

pub fn recipe_files() -> Vec<Vec<u8>> {
    let file = |chunks| {
        let (nodes, root) = recipe(chunks);
        fuzzing::write_recipe(&root, &nodes)
    };
    vec![file(1), file(300)]
}

pub fn chunk_entries() -> Vec<Vec<u8>> {
    let entry = |at: u64| [at / 20, at % 7 * 1000, at << 13, 4096 + at];
    let entries: Vec<[u64; 4]> = (0..60).map(entry).collect();
    vec![fuzzing::encode_entries(&entries[..3]), fuzzing::encode_entries(&entries)]
}

pub fn resume_records() -> Vec<Vec<u8>> {
    let lines = [
        json!({ "oid": CONTENT.to_string(), "destination": "/d" }),
        json!({ "temp": ".d.tow-1" }),
        json!({ "part": LIVE.to_string(), "temp": "big" }),
    ];
    vec![lines.map(|line| format!("{line}\n")).concat().into_bytes()]
}

pub fn share_records() -> Vec<Vec<u8>> {
    let record = json!({ "path": "/a", "oid": LIVE.to_string(), "secret": "07".repeat(16) });
    vec![record.to_string().into_bytes()]
}

pub fn ranges() -> Vec<Vec<u8>> {
    let texts =
        ["bytes=0-0", "bytes=2-", "bytes=-3", "bytes=0-18446744073709551615", "bytes= 1-2 ", "bytes=0-1,4-5"];
    texts.map(|text| text.into()).to_vec()
}

pub fn queries() -> Vec<Vec<u8>> {
    let texts = [
        "/v1/objects?cached=true",
        "/v1/content?ticket=tow1x&reuse=true&limit_rate=100&timeout=5&priority=-3",
        "/v1/puts/7/data?offset=18446744073709551615&boundary=false",
        "/v1/put-stream?name=a%20b%ff&kind=tree&session=1",
    ];
    texts.map(|text| text.into()).to_vec()
}
