//! Situations on a real disk, by topic.

#[cfg(test)]
mod disk_full;
#[cfg(test)]
mod links;
#[cfg(test)]
mod metadata;
#[cfg(test)]
mod mounts;
#[cfg(test)]
mod present;
#[cfg(test)]
mod pruned;
#[cfg(test)]
mod races;
#[cfg(test)]
mod remove;
#[cfg(test)]
mod scan;
#[cfg(test)]
mod scan_faults;
#[cfg(test)]
mod single;
#[cfg(test)]
mod staging;
#[cfg(test)]
mod support;
#[cfg(test)]
mod write;
