//! A link's end in a host: a TUN device in its namespace, read and written from here.

use std::io;
use std::sync::Arc;

use tun_rs::{DeviceBuilder, SyncDevice};

use crate::namespace::Namespace;

/// The largest packet, as on Ethernet.
pub const MTU: u16 = 1500;
/// Packets that wait for the emulator: so many that only the model's own queue drops any.
const QUEUE: u32 = 10_000;

/// One end of a link.
pub type TunEnd = Arc<SyncDevice>;

/// Makes the device `name` in `namespace`. It is gone when the last of its users is.
pub fn open(namespace: &Namespace, name: &str) -> io::Result<TunEnd> {
    namespace.enter(|| {
        let device = DeviceBuilder::new()
            .name(name)
            .mtu(MTU)
            .with(|device| {
                device.offload(true).tx_queue_len(QUEUE);
            })
            .build_sync()?;
        device.set_nonblocking(true)?;
        Ok(Arc::new(device))
    })?
}
