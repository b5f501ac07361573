//! The far end of a connection, speaking whatever a test wants.

use bytes::Bytes;
use towpath_link::{Connection, FrameReader, FrameWriter};
use towpath_protocol::wire::{self, Body, DataHeader, Get, Hello};

pub struct Liar {
    pub reader: FrameReader,
    pub writer: FrameWriter,
}

pub fn hello(version: u32) -> Body {
    Body::Hello(Hello { version, ..Hello::default() })
}

impl Liar {
    pub fn new(connection: Connection) -> Self {
        let (reader, writer) = connection.split();
        Self { reader, writer }
    }

    /// One that said hello.
    pub async fn polite(connection: Connection) -> Self {
        let mut liar = Self::new(connection);
        liar.say(hello(wire::VERSION)).await;
        liar
    }

    pub async fn frame(&mut self, kind: u8, body: impl Into<Bytes>) {
        // The other side may be gone already.
        let _ = self.writer.send_bytes(kind, &[], body.into()).await;
        let _ = self.writer.flush().await;
    }

    pub async fn say(&mut self, body: Body) {
        self.frame(wire::CONTROL, body.to_frame()).await;
    }

    pub async fn data(&mut self, header: DataHeader, payload: &[u8]) {
        self.frame(wire::DATA, [&header.encode()[..], payload].concat()).await;
    }

    /// Next message of the other side, but for hellos and pings; `None` if it is gone.
    pub async fn hear(&mut self) -> Option<Body> {
        loop {
            let frame = self.reader.next().await.ok()??;
            if frame.kind != wire::CONTROL {
                continue;
            }
            match Body::from_frame(frame.body).unwrap() {
                Body::Hello(_) | Body::Ping(_) => {}
                body => return Some(body),
            }
        }
    }

    pub async fn hear_get(&mut self) -> Option<Get> {
        loop {
            if let Body::Get(get) = self.hear().await? {
                return Some(get);
            }
        }
    }

    /// Keeps the connection open until the other side closes it.
    pub async fn linger(&mut self) {
        while self.hear().await.is_some() {}
    }
}

pub const fn header(request: u32, want: u32, piece: u32) -> DataHeader {
    DataHeader { request, want, piece, offset: 0, suggested: 0, zeros: false, encoding: 0 }
}
