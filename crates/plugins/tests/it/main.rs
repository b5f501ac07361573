//! The plugins as a session sees them: the examination of the seam, and peers that misbehave.

#[cfg(test)]
mod adaptive;
#[cfg(test)]
mod cancelling;
#[cfg(test)]
mod closing;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod control;
#[cfg(test)]
mod deltas;
#[cfg(test)]
mod disk_search;
#[cfg(test)]
mod entries;
#[cfg(test)]
mod following;
#[cfg(test)]
mod hostile_peer;
#[cfg(test)]
mod mannered;
#[cfg(test)]
mod many;
#[cfg(test)]
mod preferred;
#[cfg(test)]
mod recipes;
#[cfg(test)]
mod round_trip;
#[cfg(test)]
mod scattered;
#[cfg(test)]
mod slow_path;
#[cfg(test)]
mod standing;
#[cfg(test)]
mod support;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod wire_bytes;
