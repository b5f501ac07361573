//! Filter rules, `--chmod` and safe links: the manual's examples, and rsync itself.

#[cfg(test)]
mod against_rsync;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod chmod;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod files;
#[cfg(test)]
mod rsync;
#[cfg(test)]
mod safe_links;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod walk;
