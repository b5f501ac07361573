//! An examination that any encoding passes which keeps the contract.
//!
//! ```
//! use towpath_processors::processor::conformance;
//! use towpath_processors::processors::Processors;
//! for (_, encoding) in Processors::default().encodings() {
//!     conformance::examine(encoding);
//! }
//! ```

use super::Encoding;
use crate::MAX_PAYLOAD;

/// Panics with what the encoding does wrong.
#[allow(clippy::panic, reason = "an examination that fails says so")]
pub fn examine(encoding: &dyn Encoding) {
    let payloads = payloads();
    let (mut encoder, mut decoder) = (encoding.encoder(), encoding.decoder());
    let mut first = Vec::new();
    for payload in &payloads {
        let encoded = encoder.encode(payload);
        if let Some(encoded) = &encoded {
            assert!(
                !encoded.is_empty() && encoded.len() <= MAX_PAYLOAD,
                "a frame can't take what is encoded"
            );
            let decoded = decoder.decode(encoded, payload.len());
            assert!(decoded.as_deref() == Ok(payload), "a payload does not come back");
            for wrong in [0, payload.len() - 1, payload.len() + 1, MAX_PAYLOAD + 1] {
                let refused = decoder.decode(encoded, wrong).is_err();
                assert!(refused || wrong == payload.len(), "a payload of another length is taken");
            }
            for cut in [0, encoded.len() / 2, encoded.len() - 1] {
                let cut = decoder.decode(&encoded[..cut], payload.len());
                assert!(cut.is_err(), "a payload that was cut short is taken");
            }
        }
        first.push(encoded);
    }
    // Another encoder, and payloads in another order: nothing of it shows.
    let (mut encoder, mut decoder) = (encoding.encoder(), encoding.decoder());
    for (payload, before) in payloads.iter().zip(&first).rev() {
        assert!(encoder.encode(payload) == *before, "what comes of a payload depends on those before");
        let decoded = before.as_ref().map(|encoded| decoder.decode(encoded, payload.len()));
        assert!(
            decoded.is_none_or(|decoded| decoded.as_deref() == Ok(payload)),
            "a payload does not come back"
        );
    }
}

/// Text, noise and runs, as short and as long as payloads are.
fn payloads() -> Vec<Vec<u8>> {
    let mut noise = blake3_noise(MAX_PAYLOAD);
    let text: Vec<u8> = b"all work and no play ".iter().copied().cycle().take(MAX_PAYLOAD).collect();
    let mut payloads = Vec::new();
    for len in [1, 2, 100, 5000, MAX_PAYLOAD] {
        payloads.extend([text[..len].to_vec(), noise[..len].to_vec(), vec![7; len]]);
    }
    noise[..MAX_PAYLOAD / 2].fill(0);
    payloads.push(noise);
    payloads
}

/// Bytes that do not shrink.
fn blake3_noise(len: usize) -> Vec<u8> {
    let mut block = *towpath_content::Oid::of(b"noise").digest();
    let mut noise = Vec::with_capacity(len + block.len());
    while noise.len() < len {
        block = *towpath_content::Oid::of(&block).digest();
        noise.extend_from_slice(&block);
    }
    noise.truncate(len);
    noise
}
