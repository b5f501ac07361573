//! What is told on the LAN while a code waits.

use std::fmt::Write;
use std::time::Duration;

use mdns_sd::{ServiceDaemon, ServiceInfo};
use ring::rand::{SecureRandom, SystemRandom};

use crate::{LanError, MAX_NUMBER, NUMBER_KEY, SERVICE, VERSION, VERSION_KEY, near};

/// How long the end of an announcement may take: a packet to each interface.
const PARTING: Duration = Duration::from_millis(500);
/// Bytes of a tag.
const TAG_LEN: usize = 8;

/// An announcement. It is withdrawn when this is dropped, which may take half a second.
pub struct LanAnnouncement {
    daemon: ServiceDaemon,
}

impl LanAnnouncement {
    /// Tells the LAN that a code of this number, from 1 to 999,999, waits at a port of this machine, on all interfaces.
    pub fn start(number: u32, port: u16) -> Result<Self, LanError> {
        if !(1..=MAX_NUMBER).contains(&number) || port == 0 {
            return Err(LanError::CannotBegin(format!("no code has number {number} and port {port}")));
        }
        near::check_multicast(&near::interfaces()?)?;
        let info = info(&tag()?, number, port)?;
        let daemon = ServiceDaemon::new()?;
        daemon.register(info)?;
        Ok(Self { daemon })
    }
}

impl Drop for LanAnnouncement {
    fn drop(&mut self) {
        // Whoever has heard the announcement is told that it is over. If that fails, it is forgotten in some minutes.
        if let Ok(done) = self.daemon.shutdown() {
            let _ = done.recv_timeout(PARTING);
        }
    }
}

fn info(tag: &str, number: u32, port: u16) -> Result<ServiceInfo, LanError> {
    let properties = [(VERSION_KEY, VERSION.to_owned()), (NUMBER_KEY, number.to_string())];
    // The record of the addresses needs a name of a host: this one is as random as the other.
    let host = format!("{tag}.local.");
    let mut info = ServiceInfo::new(SERVICE, tag, &host, "", port, &properties[..])?.enable_addr_auto();
    // Nobody else has this tag, so it is told at once.
    info.set_requires_probe(false);
    Ok(info)
}

fn tag() -> Result<String, LanError> {
    let mut bytes = [0; TAG_LEN];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| LanError::CannotBegin("no random bytes".into()))?;
    Ok(bytes.iter().fold(String::new(), |mut tag, byte| {
        // Writing to a String can't fail.
        let _ = write!(tag, "{byte:02x}");
        tag
    }))
}
