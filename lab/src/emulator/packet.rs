//! Packets as they cross a TUN device: a virtio-net header, then the IP packet, checksums left undone.
//!
//! The kernel hands over up to 64 KiB of a TCP or UDP flow at once (GSO): one *super-packet*, which
//! stands for many packets of the link. The model counts, delays and loses each of them; those that
//! arrive together are handed on together. So a link of 1 Gbit/s costs some thousand system calls a
//! second, not two for each packet.

use std::ops::Range;

/// `struct virtio_net_hdr`.
const VNET: usize = 10;
const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_UDP: u8 = 5;
/// A bit beside the type: the flow uses explicit congestion notification.
const GSO_ECN: u8 = 0x80;

const TCP: u8 = 6;
const UDP: u8 = 17;
const TCP_FIN_PSH: u8 = 0x01 | 0x08;
const TCP_CWR: u8 = 0x80;

/// Room for the virtio-net header and the longest headers of IP and TCP.
const LONGEST_HEADER: usize = VNET + 60 + 60;

/// The longest that a device hands over at once.
pub const LONGEST: usize = VNET + (64 << 10);

/// One read from a device: one packet, or several of the same flow.
#[derive(Debug)]
pub struct Packet {
    bytes: Box<[u8]>,
    pieces: Option<PacketPieces>,
}

/// Pieces that a super-packet is cut into.
#[derive(Debug, Clone, Copy)]
struct PacketPieces {
    /// Begin of its transport header.
    transport: usize,
    /// Begin of its data.
    data: usize,
    /// Data bytes of each packet but the last.
    size: usize,
}

/// Buffers to write to a device to hand over some of a packet's pieces.
pub struct Slice<'a> {
    header: [u8; LONGEST_HEADER],
    header_len: usize,
    data: &'a [u8],
}

impl Slice<'_> {
    /// The two parts, in their order.
    pub fn parts(&self) -> [&[u8]; 2] {
        [&self.header[..self.header_len], self.data]
    }
}

impl Packet {
    /// Packet that was read from a device; `None` if it is none.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (bytes.len() > VNET).then(|| Self { pieces: PacketPieces::find(bytes), bytes: bytes.into() })
    }

    /// Number of the link's packets that it stands for.
    pub fn count(&self) -> usize {
        self.pieces.map_or(1, |pieces| (self.bytes.len() - pieces.data).div_ceil(pieces.size))
    }

    /// The IP length of one of them.
    pub fn len(&self, index: usize) -> u64 {
        let len = match self.pieces {
            None => self.bytes.len() - VNET,
            Some(pieces) => pieces.data - VNET + self.data(pieces, index..index + 1).len(),
        };
        len as u64
    }

    /// Slice that hands over these packets at once.
    pub fn slice(&self, range: Range<usize>) -> Slice<'_> {
        let mut header = [0; LONGEST_HEADER];
        match self.pieces {
            None => {
                header[..VNET].copy_from_slice(&self.bytes[..VNET]);
                Slice { header, header_len: VNET, data: &self.bytes[VNET..] }
            }
            Some(pieces) => {
                header[..pieces.data].copy_from_slice(&self.bytes[..pieces.data]);
                let data = self.data(pieces, range.clone());
                let is_last = range.end == self.count();
                pieces.renew(&mut header[..pieces.data], range.start, is_last, data.len());
                Slice { header, header_len: pieces.data, data }
            }
        }
    }

    fn data(&self, pieces: PacketPieces, range: Range<usize>) -> &[u8] {
        let end = (pieces.data + range.end * pieces.size).min(self.bytes.len());
        &self.bytes[pieces.data + range.start * pieces.size..end]
    }
}

impl PacketPieces {
    /// Pieces of a packet; `None` if it is not cut, or is of a kind that the devices were not told to send.
    fn find(bytes: &[u8]) -> Option<Self> {
        let native = |at: usize| usize::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]));
        let (size, transport) = (native(4), VNET + native(6));
        let is_cut = bytes[0] & NEEDS_CHECKSUM != 0 && size > 0 && bytes[VNET] >> 4 == 4;
        let header = match bytes[1] & !GSO_ECN {
            GSO_TCPV4 if is_cut => usize::from(bytes.get(transport + 12)? >> 4) * 4,
            GSO_UDP if is_cut => 8,
            _ => return None,
        };
        let data = transport + header;
        let has_room = transport >= VNET + 20 && (header >= 20 || bytes[1] == GSO_UDP);
        (has_room && data < bytes.len() && data <= LONGEST_HEADER).then_some(Self { transport, data, size })
    }

    /// Makes the headers of a super-packet those of `len` bytes of its data, from packet `first` on.
    fn renew(self, header: &mut [u8], first: usize, is_last: bool, len: usize) {
        if len <= self.size {
            header[1] = GSO_NONE;
            header[4..6].fill(0);
        }
        header[2..4].copy_from_slice(&((self.data - VNET) as u16).to_ne_bytes());
        self.renew_ip(&mut header[VNET..self.transport], first, len);
        let transport_len = (self.data - self.transport + len) as u16;
        let protocol = header[VNET + 9];
        let pseudo = sum(&header[VNET + 12..VNET + 20]) + u32::from(protocol) + u32::from(transport_len);
        let transport = &mut header[self.transport..];
        let checksum = match protocol {
            UDP => {
                transport[4..6].copy_from_slice(&transport_len.to_be_bytes());
                6..8
            }
            _ => {
                debug_assert_eq!(protocol, TCP);
                renew_tcp(transport, first * self.size, first == 0, is_last);
                16..18
            }
        };
        transport[checksum].copy_from_slice(&fold(pseudo).to_be_bytes());
    }

    fn renew_ip(self, ip: &mut [u8], first: usize, len: usize) {
        let total = self.data - VNET + len;
        ip[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(first as u16);
        ip[4..6].copy_from_slice(&id.to_be_bytes());
        ip[10..12].fill(0);
        let checksum = !fold(sum(ip));
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// As a network card cuts it: what ends the data goes with the last packet, what starts with the first.
fn renew_tcp(tcp: &mut [u8], offset: usize, is_first: bool, is_last: bool) {
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]).wrapping_add(offset as u32);
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    if !is_first {
        tcp[13] &= !TCP_CWR;
    }
    if !is_last {
        tcp[13] &= !TCP_FIN_PSH;
    }
}

/// The sum of big-endian words, as RFC 1071 has it; `bytes` has an even length.
fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum()
}

fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 3,000 bytes of TCP in packets of 1,448.
    fn super_packet() -> Packet {
        let mut bytes = vec![NEEDS_CHECKSUM, GSO_TCPV4, 0, 0];
        for value in [1448u16, 20, 16] {
            bytes.extend(value.to_ne_bytes());
        }
        let mut ip = [0; 20];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&3052u16.to_be_bytes());
        ip[4..6].copy_from_slice(&0xffffu16.to_be_bytes());
        ip[8..10].copy_from_slice(&[64, TCP]);
        ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend(ip);
        let mut tcp = [0; 32];
        tcp[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
        tcp[12] = 8 << 4;
        tcp[13] = TCP_CWR | 0x10 | TCP_FIN_PSH;
        bytes.extend(tcp);
        bytes.extend((0..3000u32).map(|at| at as u8));
        Packet::new(&bytes).unwrap()
    }

    fn written(packet: &Packet, range: Range<usize>) -> Vec<u8> {
        packet.slice(range).parts().concat()
    }

    #[test]
    fn a_super_packet_counts_as_the_packets_of_the_link() {
        let packet = super_packet();
        assert_eq!(packet.count(), 3);
        assert_eq!([packet.len(0), packet.len(1), packet.len(2)], [1500, 1500, 156]);
    }

    #[test]
    fn each_piece_is_a_packet_of_its_own() {
        let packet = super_packet();
        let last = written(&packet, 2..3);
        assert_eq!(last.len(), VNET + 156);
        assert_eq!((last[0], last[1], &last[4..6]), (NEEDS_CHECKSUM, GSO_NONE, &[0, 0][..]));
        let (ip, tcp) = (&last[VNET..VNET + 20], &last[VNET + 20..VNET + 52]);
        assert_eq!(ip[2..4], 156u16.to_be_bytes());
        assert_eq!(ip[4..6], 1u16.to_be_bytes(), "identifiers count on, and around");
        assert_eq!(fold(sum(ip)), 0xffff, "a right header sums up to all ones");
        assert_eq!(tcp[4..8], 2895u32.to_be_bytes(), "sequence numbers go around");
        assert_eq!(tcp[13], 0x10 | TCP_FIN_PSH);
        assert_eq!(written(&packet, 0..1)[VNET + 20 + 13], TCP_CWR | 0x10);
        let pseudo = fold(sum(&ip[12..20]) + 6 + 136);
        assert_eq!(tcp[16..18], pseudo.to_be_bytes());
        assert_eq!(last[VNET + 52], (2896 % 256) as u8);
    }

    #[test]
    fn datagrams_are_cut_too() {
        let mut bytes = super_packet().bytes[..VNET + 20].to_vec();
        bytes[1] = GSO_UDP;
        bytes[4..6].copy_from_slice(&1200u16.to_ne_bytes());
        bytes[8..10].copy_from_slice(&6u16.to_ne_bytes());
        bytes[VNET + 9] = UDP;
        bytes.extend([0, 1, 0, 2, 0x0d, 0xb4, 0, 0]);
        bytes.extend([7; 3500]);
        let packet = Packet::new(&bytes).unwrap();
        assert_eq!((packet.count(), packet.len(0), packet.len(2)), (3, 1228, 1128));
        let last = written(&packet, 2..3);
        let udp = &last[VNET + 20..VNET + 28];
        assert_eq!(
            (last[1], &udp[..4], &udp[4..6]),
            (GSO_NONE, &[0, 1, 0, 2][..], &1108u16.to_be_bytes()[..])
        );
        let pseudo = fold(sum(&last[VNET + 12..VNET + 20]) + 17 + 1108);
        assert_eq!(udp[6..8], pseudo.to_be_bytes());
    }

    #[test]
    fn pieces_that_arrive_together_stay_together() {
        let packet = super_packet();
        let two = written(&packet, 1..3);
        assert_eq!(two.len(), VNET + 52 + 1552);
        assert_eq!((two[1], u16::from_ne_bytes([two[4], two[5]])), (GSO_TCPV4, 1448));
        let all = written(&packet, 0..3);
        assert_eq!(all.len(), packet.bytes.len());
        assert_eq!(all[VNET + 52..], packet.bytes[VNET + 52..]);
    }

    #[test]
    fn other_packets_pass_as_they_are() {
        let mut plain = super_packet().bytes.to_vec();
        plain[1] = GSO_NONE;
        let packet = Packet::new(&plain).unwrap();
        assert_eq!((packet.count(), packet.len(0)), (1, 3052));
        assert_eq!(written(&packet, 0..1), plain);
        assert!(Packet::new(&plain[..VNET]).is_none());
        let mut cut_short = super_packet().bytes.to_vec();
        cut_short.truncate(VNET + 30);
        assert_eq!(Packet::new(&cut_short).unwrap().count(), 1, "no header to cut it by");
    }
}
