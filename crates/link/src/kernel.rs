//! `TCP_INFO`, the socket's queues and its congestion control: the only place that speaks to the kernel by hand.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The most bytes that are waited for at once, some more than two records: half of the window that a connection has from the start,
/// so that its sender goes on.
pub const MOST_WAITING: usize = (32 << 10) + 64;

/// The beginning of the names of congestion controls that measure a rate and pace packets by it.
pub const PACES: &str = "bbr";

/// A snapshot of one TCP connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PathInfo {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// The shortest round-trip time of late; zero if not measured.
    pub min_rtt: Duration,
    /// Bytes that may be under way unacknowledged.
    pub congestion_window_bytes: u64,
    /// Rate at which data arrived lately, as far as there was enough to send; `None` if not measured.
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// Bytes in the send queue that were never sent: what waits for the network.
    pub unsent_bytes: u64,
    /// Bytes that arrived and were not read yet: what waits for us.
    pub receive_queue_bytes: u64,
    /// Bytes in the send queue, sent and unsent, that are not acknowledged.
    pub send_queue_bytes: u64,
    /// Segments sent again since the connection began.
    pub retransmits: u64,
    /// Segments with data that arrived since the connection began, also those behind one that is still missing. `None` if the
    /// system does not count them.
    pub data_segments: Option<u64>,
    /// Segments that came before one that was still missing, since the connection began: what is lost
    /// on the way here shows so. `None` if the system does not count them.
    pub out_of_order: Option<u64>,
}

/// The kernel's figures for this socket; `None` if it is not TCP or the system can't tell.
#[cfg(not(target_os = "linux"))]
pub fn path_info(_: BorrowedFd<'_>) -> Option<PathInfo> {
    None
}

/// The kernel's figures for this socket; `None` if it is not TCP or the system can't tell.
#[cfg(target_os = "linux")]
pub fn path_info(socket: BorrowedFd<'_>) -> Option<PathInfo> {
    linux::path_info(socket)
}

/// Lets no more bytes wait unsent than this, about; `None` for the system's own limit.
#[cfg(not(target_os = "linux"))]
pub fn limit_unsent(_: BorrowedFd<'_>, _: Option<u32>) -> io::Result<()> {
    Ok(())
}

/// Lets no more bytes wait unsent than this, about; `None` for the system's own limit.
#[cfg(target_os = "linux")]
pub fn limit_unsent(socket: BorrowedFd<'_>, bytes: Option<u32>) -> io::Result<()> {
    // The kernel's word for its own limit is 0.
    socket2::SockRef::from(&socket).set_tcp_notsent_lowat(bytes.unwrap_or(0))
}

/// Makes who waits for bytes on this socket wait until so many, or the end, are here, or the peer may send no more.
#[cfg(not(target_os = "linux"))]
pub fn wake_at(_: BorrowedFd<'_>, _: usize) -> io::Result<()> {
    Ok(())
}

/// Makes who waits for bytes on this socket wait until so many, or the end, are here, or the peer may send no more.
#[cfg(target_os = "linux")]
pub fn wake_at(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    linux::wake_at(socket, bytes)
}

/// The name of the congestion control that this socket has; `None` where there are no names.
#[cfg(not(target_os = "linux"))]
pub fn congestion_control(_: BorrowedFd<'_>) -> Option<String> {
    None
}

/// The name of the congestion control that this socket has; `None` where there are no names.
#[cfg(target_os = "linux")]
pub fn congestion_control(socket: BorrowedFd<'_>) -> Option<String> {
    rustix::net::sockopt::tcp_congestion(socket).ok()
}

/// Gives this socket another congestion control, if the system allows it.
#[cfg(not(target_os = "linux"))]
pub fn set_congestion_control(_: BorrowedFd<'_>, _: &str) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Gives this socket another congestion control, if the system allows it.
#[cfg(target_os = "linux")]
pub fn set_congestion_control(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_tcp_congestion(socket, name)?)
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
mod linux {
    use std::io;
    use std::mem::{offset_of, size_of};
    use std::os::fd::{AsRawFd, BorrowedFd};
    use std::time::Duration;

    use super::PathInfo;

    /// `struct tcp_info` of `linux/tcp.h` as far as it is used; the kernel only ever appends.
    #[repr(C)]
    #[derive(Default)]
    struct TcpInfo {
        bytes: [u8; 8],
        rto: u32,
        ato: u32,
        snd_mss: u32,
        rcv_mss: u32,
        segments: [u32; 5],
        times: [u32; 4],
        pmtu: u32,
        rcv_ssthresh: u32,
        rtt_us: u32,
        rttvar_us: u32,
        snd_ssthresh: u32,
        snd_cwnd: u32,
        advmss: u32,
        reordering: u32,
        rcv_rtt: u32,
        rcv_space: u32,
        total_retrans: u32,
        pacing_rate: u64,
        max_pacing_rate: u64,
        bytes_acked: u64,
        bytes_received: u64,
        segs_out: u32,
        segs_in: u32,
        notsent_bytes: u32,
        min_rtt_us: u32,
        data_segs_in: u32,
        data_segs_out: u32,
        delivery_rate: u64,
        limits_us: [u64; 3],
        delivered: [u32; 2],
        bytes_sent: u64,
        bytes_retrans: u64,
        dsack_dups: u32,
        reord_seen: u32,
        rcv_ooopack: u32,
        snd_wnd: u32,
    }

    // The offsets of the header file, so that a slip above does not compile.
    const _: () = assert!(offset_of!(TcpInfo, rtt_us) == 68);
    const _: () = assert!(offset_of!(TcpInfo, total_retrans) == 100);
    const _: () = assert!(offset_of!(TcpInfo, notsent_bytes) == 144);
    const _: () = assert!(offset_of!(TcpInfo, data_segs_in) == 152);
    const _: () = assert!(offset_of!(TcpInfo, delivery_rate) == 160);
    const _: () = assert!(offset_of!(TcpInfo, rcv_ooopack) == 224);
    const _: () = assert!(size_of::<TcpInfo>() == 232);

    pub fn path_info(socket: BorrowedFd<'_>) -> Option<PathInfo> {
        let (info, len) = tcp_info(socket)?;
        let micros = |us: u32| Duration::from_micros(u64::from(us));
        Some(PathInfo {
            rtt: micros(info.rtt_us),
            // The kernel's word for "never measured" is the largest number.
            min_rtt: if info.min_rtt_us == u32::MAX { Duration::ZERO } else { micros(info.min_rtt_us) },
            congestion_window_bytes: u64::from(info.snd_cwnd) * u64::from(info.snd_mss),
            delivery_rate_bytes_per_s: Some(info.delivery_rate).filter(|&rate| rate > 0),
            unsent_bytes: u64::from(info.notsent_bytes),
            receive_queue_bytes: rustix::io::ioctl_fionread(socket).unwrap_or(0),
            send_queue_bytes: send_queue(socket).unwrap_or(0),
            retransmits: u64::from(info.total_retrans),
            // Since Linux 4.6.
            data_segments: (len > offset_of!(TcpInfo, data_segs_in)).then(|| info.data_segs_in.into()),
            // Since Linux 5.4.
            out_of_order: (len > offset_of!(TcpInfo, rcv_ooopack)).then(|| info.rcv_ooopack.into()),
        })
    }

    /// The kernel's structure, and the number of its bytes; fields that an older one does not know stay zero.
    fn tcp_info(socket: BorrowedFd<'_>) -> Option<(TcpInfo, usize)> {
        let mut info = TcpInfo::default();
        let mut len = size_of::<TcpInfo>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes to `info`, which is that large, owned
        // here, and made of integers, for which all bytes are valid. `socket` is open.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &raw mut len,
            )
        };
        (result == 0).then_some((info, len as usize))
    }

    /// `SO_RCVLOWAT`.
    pub fn wake_at(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        // SAFETY: the kernel reads one `int` from the address given, and `socket` is open.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                (&raw const bytes).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// `SIOCOUTQ`: bytes sent and unsent that the peer has not acknowledged.
    fn send_queue(socket: BorrowedFd<'_>) -> Option<u64> {
        let mut count: libc::c_int = 0;
        // SAFETY: this request writes one `int` to the address given, and `socket` is open.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
        if result == 0 { u64::try_from(count).ok() } else { None }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn the_queues_show_who_waits_for_whom() {
        let (mut near, mut far) = pair();
        near.write_all(&[0; 5000]).unwrap();
        let begun = Instant::now();
        while path_info(far.as_fd()).unwrap().receive_queue_bytes < 5000 {
            assert!(begun.elapsed() < Duration::from_secs(5));
        }
        far.read_exact(&mut [0; 5000]).unwrap();
        assert_eq!(path_info(far.as_fd()).unwrap().receive_queue_bytes, 0);

        // Nobody reads now, so data pile up at the sender.
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 1 << 16]).is_ok() {}
        let info = path_info(near.as_fd()).unwrap();
        assert!(info.unsent_bytes > 0 && info.send_queue_bytes >= info.unsent_bytes, "{info:?}");
    }

    #[test]
    fn a_used_path_has_a_window_and_a_rate() {
        let (mut near, mut far) = pair();
        let mut buffer = vec![0; 1 << 16];
        for _ in 0..20 {
            near.write_all(&buffer).unwrap();
            far.read_exact(&mut buffer).unwrap();
        }
        let info = path_info(near.as_fd()).unwrap();
        assert!(info.congestion_window_bytes >= 10 * 536, "{info:?}");
        assert!(info.rtt > Duration::ZERO && info.rtt < Duration::from_secs(1), "{info:?}");
        assert!(info.delivery_rate_bytes_per_s.is_some(), "{info:?}");
        assert!(info.min_rtt <= info.rtt * 10, "{info:?}");
        assert!(info.out_of_order.is_none_or(|segments| segments < 1000), "{info:?}");
        let received = |end: &TcpStream| path_info(end.as_fd()).unwrap().data_segments;
        assert!(received(&near).is_none_or(|segments| segments == 0));
        assert!(received(&far).is_none_or(|segments| (1..=20 << 16).contains(&segments)));
    }

    #[test]
    fn little_waits_unsent_once_it_is_limited() {
        let unsent = |limit| {
            let (mut near, _far) = pair();
            limit_unsent(near.as_fd(), limit).unwrap();
            near.set_nonblocking(true).unwrap();
            while near.write(&[0; 1 << 14]).is_ok() {}
            path_info(near.as_fd()).unwrap().unsent_bytes
        };
        let (few, many) = (unsent(Some(16 << 10)), unsent(None));
        // The bytes of one call are taken as a whole, in the kernel's blocks.
        assert!(few <= 128 << 10 && few < many, "{few} and {many}");
    }

    #[test]
    fn who_waits_is_woken_by_as_much_as_it_wants_and_by_the_end() {
        let (mut near, far) = pair();
        let is_woken = |within_ms: i64| {
            let within = rustix::event::Timespec { tv_sec: 0, tv_nsec: within_ms * 1_000_000 };
            let mut polled = [rustix::event::PollFd::new(&far, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut polled, Some(&within)).unwrap() > 0
        };
        wake_at(far.as_fd(), 10_000).unwrap();
        near.write_all(&[0; 9999]).unwrap();
        assert!(!is_woken(100));
        near.write_all(&[0]).unwrap();
        assert!(is_woken(900));
        (&far).read_exact(&mut [0; 10_000]).unwrap();
        near.write_all(&[0; 5]).unwrap();
        assert!(!is_woken(20));
        wake_at(far.as_fd(), 1).unwrap();
        assert!(is_woken(900), "it is content with less");
        wake_at(far.as_fd(), 10_000).unwrap();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(is_woken(900), "the end");
    }

    #[test]
    fn what_is_no_tcp_socket_tells_nothing() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(path_info(near.as_fd()), None);
    }
}
