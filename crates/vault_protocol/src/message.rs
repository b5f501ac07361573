//! The messages. Layouts: `docs/formats/vault.md`.

use bytes::Bytes;
use towpath_content::DecodeError;
use towpath_content::NodeId;
use towpath_content::codec::{Reader, Writer, invalid};
use towpath_vault_format::canonical::{list, option, write_list, write_option};
use towpath_vault_format::node::MAX_NODE;
use towpath_vault_format::statement::MAX_RANGES;
use towpath_vault_format::tuple::MAX_BLOCK;
use towpath_vault_format::{
    Canonical, Certificate, Conflict, Digest, DropStatement, DroppedRange, FileId, SignedRoot, Update,
    VaultId,
};

use crate::assembly::{MAX_MESSAGE, frames};

/// The most objects that are asked for at once.
pub const MAX_GET: usize = 4096;
/// The most versions on one page of a list.
pub const MAX_VERSIONS: usize = 1000;
/// The most statements that are told at once.
pub const MAX_STATEMENTS: usize = 64;
/// The longest reason, in bytes.
const MAX_REASON: usize = 200;
/// The most nodes of a proof.
const MAX_PATHS: usize = 1 << 16;

/// A version with the words of its writer and of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedVersion {
    /// The version.
    pub signed: SignedRoot,
    /// The server's word.
    pub certificate: Certificate,
}

/// The version that a client has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenVersion {
    /// Its number.
    pub number: u64,
    /// The beginning of the hash of all that is known of it.
    pub check: [u8; 8],
}

impl SeenVersion {
    /// What names a version.
    pub fn of(version: &CommittedVersion) -> Self {
        let mut check = [0; 8];
        check.copy_from_slice(&version.digest().0[..8]);
        Self { number: version.signed.root.number, check }
    }

    fn write(&self, out: &mut Writer) {
        out.varint(self.number).raw(&self.check);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { number: reader.varint("version")?, check: reader.array("version")? })
    }
}

/// A version in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionLine {
    /// Its number.
    pub number: u64,
    /// Hash of its root.
    pub root: Digest,
    /// Seconds since 1970 by the server's clock.
    pub time: u64,
    /// Who wrote it.
    pub writer: NodeId,
}

/// Bytes of a vault on its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VaultUsage {
    /// Of its log and packs.
    pub stored: u64,
    /// Of objects that no version needs, but for those that were said to go.
    pub needless: u64,
}

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientMessage {
    /// First of all: the vault that this is about, and the version of it that the client has seen.
    Hello(VaultId, Option<SeenVersion>),
    /// A new version.
    Propose {
        /// What makes it.
        update: Box<Update>,
        /// Of the writer, over root and update. `None`: the client lacks the tree and wants the paths.
        signature: Option<[u8; 64]>,
        /// All blocks of the update follow, whatever the server has.
        pushes: bool,
    },
    /// A new version with all its blocks, which are few: its signature, and its update as it is packed for the server ([`crate::whole`]).
    Whole {
        /// Of the writer, over root and update.
        signature: [u8; 64],
        /// The update and its blocks.
        packed: Bytes,
    },
    /// The signature of what was proposed without one.
    Sign([u8; 64]),
    /// A block, of those that are wanted the next.
    Block(Bytes),
    /// Nodes, blocks and records of these hashes; at most [`MAX_GET`].
    Get(Vec<Digest>),
    /// Versions before number `before`, the newest first, `most` of them and [`MAX_VERSIONS`] at most.
    Versions {
        /// The number.
        before: u64,
        /// How many.
        most: u64,
    },
    /// The version of this number.
    Root(u64),
    /// The update that made the version of this number.
    GetUpdate(u64),
    /// Versions that may go.
    Drop(DropStatement),
    /// What was proposed is not to be done.
    Withdraw,
    /// How many bytes the vault has, and how many of them no version would need if these were dropped, too.
    Usage(Vec<DroppedRange>),
    /// The words by which versions were dropped, from this number on; [`MAX_STATEMENTS`] at most.
    Statements(u64),
}

/// What a server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerMessage {
    /// The newest version; `None`: there is no such vault.
    Head(Option<Box<CommittedVersion>>),
    /// Blocks of the update that are lacking, by their place in it.
    Wants(Vec<u32>),
    /// The nodes along the paths that the update changes.
    Paths(Vec<Bytes>),
    /// The version is committed.
    Committed(Certificate),
    /// The version is not committed, because of what the head has.
    Conflict(Conflict, Option<Box<CommittedVersion>>),
    /// What was asked for is not done.
    Refused(VaultRefusal, String),
    /// The next object that was asked for.
    Object(Bytes),
    /// The next object that was asked for is not here.
    Missing(Digest),
    /// Versions, the newest first.
    Versions(Vec<VersionLine>),
    /// A version.
    Root(Box<CommittedVersion>),
    /// The update that made a version, packed for who reads it ([`crate::whole`]).
    Update(Bytes),
    /// The statement of this number is kept.
    Dropped(u64),
    /// What the vault takes.
    Usage(VaultUsage),
    /// Statements, in order.
    Statements(Vec<DropStatement>),
    /// What the newest version differs in from the one that the client has seen ([`crate::newer`]).
    Newer(Bytes),
}

/// Why something is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VaultRefusal {
    /// Bytes that can't be understood, or not now.
    Malformed,
    /// The client has no right to this.
    NotAllowed,
    /// The update can't be done on its base.
    Update,
    /// The signature is not the writer's, or of another root than the one that follows.
    Signature,
    /// Tuples name blocks that are neither here nor in the update.
    Blocks,
    /// The server has no room for it.
    Full,
    /// There is no such version.
    NoVersion,
    /// The server failed. Later it may go.
    Failed,
    /// The server is ending.
    Ending,
}

impl VaultRefusal {
    /// All, with their numbers.
    pub const ALL: [(u8, Self); 9] = [
        (1, Self::Malformed),
        (2, Self::NotAllowed),
        (3, Self::Update),
        (4, Self::Signature),
        (5, Self::Blocks),
        (6, Self::Full),
        (7, Self::NoVersion),
        (8, Self::Failed),
        (9, Self::Ending),
    ];

    fn number(self) -> u8 {
        Self::ALL.iter().find(|(_, refusal)| *refusal == self).map_or(8, |(number, _)| *number)
    }

    /// One of a later version reads as [`Self::Failed`].
    fn from_number(number: u8) -> Self {
        Self::ALL.iter().find(|(known, _)| *known == number).map_or(Self::Failed, |(_, refusal)| *refusal)
    }
}

impl Canonical for CommittedVersion {
    const NAME: &'static str = "committed version";
    const LIMIT: usize = SignedRoot::LIMIT + Certificate::LIMIT;

    fn write(&self, out: &mut Writer) {
        self.signed.write(out);
        self.certificate.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { signed: SignedRoot::read(reader)?, certificate: Certificate::read(reader)? })
    }
}

impl Canonical for VersionLine {
    const NAME: &'static str = "version line";
    const LIMIT: usize = 10 + 32 + 10 + 32;

    fn write(&self, out: &mut Writer) {
        out.varint(self.number).raw(&self.root.0).varint(self.time).raw(&self.writer.0);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            number: reader.varint("version")?,
            root: Digest(reader.array("root")?),
            time: reader.varint("time")?,
            writer: NodeId(reader.array("writer")?),
        })
    }
}

impl ClientMessage {
    /// Its frames: kind and body of each.
    pub fn to_frames(&self) -> Vec<(u8, Bytes)> {
        match self {
            Self::Block(block) => frames(self.kind(), block.clone()),
            _ => {
                let mut out = Writer::new();
                self.write(&mut out);
                frames(self.kind(), out.into_bytes().into())
            }
        }
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Hello(..) => 1,
            Self::Propose { .. } => 2,
            Self::Sign(_) => 3,
            Self::Block(_) => 4,
            Self::Get(_) => 5,
            Self::Versions { .. } => 6,
            Self::Root(_) => 7,
            Self::GetUpdate(_) => 8,
            Self::Drop(_) => 9,
            Self::Withdraw => 10,
            Self::Usage(_) => 11,
            Self::Statements(_) => 12,
            Self::Whole { .. } => 13,
        }
    }

    fn write(&self, out: &mut Writer) {
        match self {
            Self::Hello(vault, seen) => {
                out.raw(&vault.0);
                write_option(out, seen.as_ref(), SeenVersion::write);
            }
            Self::Propose { update, signature, pushes } => {
                out.u8(u8::from(*pushes));
                write_option(out, signature.as_ref(), |signature, out| put(out.raw(signature)));
                update.write(out);
            }
            Self::Whole { signature, packed } => put(out.raw(signature).raw(packed)),
            Self::Sign(signature) => put(out.raw(signature)),
            Self::Block(block) => put(out.raw(block)),
            Self::Get(hashes) => write_list(out, hashes, |hash, out| put(out.raw(&hash.0))),
            Self::Versions { before, most } => put(out.varint(*before).varint(*most)),
            Self::Root(number) | Self::GetUpdate(number) | Self::Statements(number) => {
                put(out.varint(*number));
            }
            Self::Drop(statement) => statement.write(out),
            Self::Withdraw => {}
            Self::Usage(dropped) => write_list(out, dropped, DroppedRange::write),
        }
    }

    /// Reads a message; `None` for a kind of a later version, which is passed over.
    pub fn from_body(kind: u8, body: &Bytes) -> Result<Option<Self>, DecodeError> {
        let mut reader = Reader::new(body);
        let message = match kind {
            1 => {
                let vault = VaultId(reader.array("vault id")?);
                Self::Hello(vault, option(&mut reader, "seen version", SeenVersion::read)?)
            }
            2 => Self::Propose {
                pushes: reader.bounded("push", 1)? == 1,
                signature: option(&mut reader, "signature", |reader| reader.array("signature"))?,
                update: Box::new(Update::from_bytes(rest(&mut reader))?),
            },
            3 => Self::Sign(reader.array("signature")?),
            4 => return limited("block", body, MAX_BLOCK as usize).map(|block| Some(Self::Block(block))),
            5 => Self::Get(list(&mut reader, "hashes", MAX_GET, |reader| reader.array("hash").map(Digest))?),
            6 => Self::Versions { before: reader.varint("version")?, most: reader.varint("versions")? },
            7 => Self::Root(reader.varint("version")?),
            8 => Self::GetUpdate(reader.varint("version")?),
            9 => Self::Drop(DropStatement::read(&mut reader)?),
            10 => Self::Withdraw,
            11 => Self::Usage(list(&mut reader, "versions", MAX_RANGES, DroppedRange::read)?),
            12 => Self::Statements(reader.varint("number of a statement")?),
            13 => {
                let signature = reader.array("signature")?;
                let packed = Bytes::copy_from_slice(rest(&mut reader));
                Self::Whole { signature, packed }
            }
            _ => return Ok(None),
        };
        reader.finish().map(|()| Some(message))
    }
}

impl ServerMessage {
    /// Its frames: kind and body of each.
    pub fn to_frames(&self) -> Vec<(u8, Bytes)> {
        match self {
            Self::Object(bytes) | Self::Update(bytes) | Self::Newer(bytes) => {
                frames(self.kind(), bytes.clone())
            }
            _ => {
                let mut out = Writer::new();
                self.write(&mut out);
                frames(self.kind(), out.into_bytes().into())
            }
        }
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Head(_) => 33,
            Self::Wants(_) => 34,
            Self::Paths(_) => 35,
            Self::Committed(_) => 36,
            Self::Conflict(..) => 37,
            Self::Refused(..) => 38,
            Self::Object(_) => 39,
            Self::Missing(_) => 40,
            Self::Versions(_) => 41,
            Self::Root(_) => 42,
            Self::Update(_) => 43,
            Self::Dropped(_) => 44,
            Self::Usage(_) => 45,
            Self::Statements(_) => 46,
            Self::Newer(_) => 47,
        }
    }

    fn write(&self, out: &mut Writer) {
        match self {
            Self::Head(head) => write_option(out, head.as_deref(), CommittedVersion::write),
            Self::Wants(wanted) => write_wanted(out, wanted),
            Self::Paths(nodes) => write_list(out, nodes, |node, out| put(out.bytes(node))),
            Self::Committed(certificate) => certificate.write(out),
            Self::Conflict(conflict, head) => write_conflict(out, conflict, head.as_deref()),
            Self::Refused(refusal, why) => put(out.u8(refusal.number()).bytes(shortened(why).as_bytes())),
            Self::Object(bytes) | Self::Update(bytes) | Self::Newer(bytes) => put(out.raw(bytes)),
            Self::Missing(hash) => put(out.raw(&hash.0)),
            Self::Versions(lines) => write_list(out, lines, VersionLine::write),
            Self::Root(version) => version.write(out),
            Self::Dropped(number) => put(out.varint(*number)),
            Self::Usage(VaultUsage { stored, needless }) => put(out.varint(*stored).varint(*needless)),
            Self::Statements(statements) => write_list(out, statements, DropStatement::write),
        }
    }

    /// Reads a message; `None` for a kind of a later version, which is passed over.
    pub fn from_body(kind: u8, body: &Bytes) -> Result<Option<Self>, DecodeError> {
        let mut reader = Reader::new(body);
        let version = |reader: &mut Reader<'_>| CommittedVersion::read(reader).map(Box::new);
        let message = match kind {
            33 => Self::Head(option(&mut reader, "head", version)?),
            34 => Self::Wants(read_wanted(&mut reader)?),
            35 => Self::Paths(list(&mut reader, "nodes", MAX_PATHS, |reader| {
                reader.bytes("node", MAX_NODE).map(Bytes::copy_from_slice)
            })?),
            36 => Self::Committed(Certificate::read(&mut reader)?),
            37 => Self::Conflict(read_conflict(&mut reader)?, option(&mut reader, "head", version)?),
            38 => {
                let refusal = VaultRefusal::from_number(reader.u8("refusal")?);
                let why = reader.bytes("reason", MAX_REASON)?;
                Self::Refused(refusal, printable(why))
            }
            39 => {
                let limit = MAX_NODE.max(MAX_BLOCK as usize);
                return limited("object", body, limit).map(|object| Some(Self::Object(object)));
            }
            40 => Self::Missing(Digest(reader.array("hash")?)),
            41 => Self::Versions(list(&mut reader, "versions", MAX_VERSIONS, VersionLine::read)?),
            42 => Self::Root(version(&mut reader)?),
            43 => return Ok(Some(Self::Update(body.clone()))),
            47 => return Ok(Some(Self::Newer(body.clone()))),
            44 => Self::Dropped(reader.varint("number of a statement")?),
            45 => Self::Usage(VaultUsage {
                stored: reader.varint("bytes of a vault")?,
                needless: reader.varint("bytes of garbage")?,
            }),
            46 => Self::Statements(list(&mut reader, "statements", MAX_STATEMENTS, DropStatement::read)?),
            _ => return Ok(None),
        };
        reader.finish().map(|()| Some(message))
    }
}

fn rest<'a>(reader: &mut Reader<'a>) -> &'a [u8] {
    // As many as there are can always be taken.
    reader.take("update", reader.remaining()).unwrap_or_default()
}

/// Ends a chain of writes.
fn put(_: &mut Writer) {}

/// Wanted blocks as runs: the first of each, and how many.
fn write_wanted(out: &mut Writer, wanted: &[u32]) {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for index in wanted {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == *index => *count += 1,
            _ => runs.push((*index, 1)),
        }
    }
    write_list(out, &runs, |(first, count), out| {
        out.varint((*first).into()).varint((*count).into());
    });
}

fn read_wanted(reader: &mut Reader<'_>) -> Result<Vec<u32>, DecodeError> {
    let most = (MAX_MESSAGE / 33) as u64;
    let runs = list(reader, "wanted blocks", MAX_MESSAGE, |reader| {
        Ok((reader.bounded("wanted block", most)? as u32, reader.bounded("wanted blocks", most)? as u32))
    })?;
    let (mut wanted, mut next) = (Vec::new(), 0);
    for (index, (first, count)) in runs.into_iter().enumerate() {
        let end = u64::from(first) + u64::from(count);
        let is_apart = index == 0 || first > next;
        if count == 0 || end > most || !is_apart {
            return Err(invalid("wanted blocks", "are not runs in order"));
        }
        wanted.extend(first..first + count);
        next = first + count;
    }
    Ok(wanted)
}

fn write_conflict(out: &mut Writer, conflict: &Conflict, head: Option<&CommittedVersion>) {
    match conflict {
        Conflict::Moved => out.u8(1),
        Conflict::FileChanged(file) => out.u8(2).raw(&file.0),
        Conflict::Existence => out.u8(3),
    };
    write_option(out, head, CommittedVersion::write);
}

fn read_conflict(reader: &mut Reader<'_>) -> Result<Conflict, DecodeError> {
    match reader.u8("conflict")? {
        1 => Ok(Conflict::Moved),
        2 => Ok(Conflict::FileChanged(FileId(reader.array("file id")?))),
        3 => Ok(Conflict::Existence),
        _ => Err(invalid("conflict", "is none that this program knows")),
    }
}

/// At most [`MAX_REASON`] bytes of a text.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_REASON)]
}

/// A server's words, without what a terminal would obey. What replaces bytes that are no text is longer than they are.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut text: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    text.truncate(shortened(&text).len());
    text
}

/// A body that is kept as it is, in memory of its own: a frame shares its memory with others.
fn limited(field: &'static str, body: &Bytes, limit: usize) -> Result<Bytes, DecodeError> {
    match body.len() <= limit {
        true => Ok(Bytes::copy_from_slice(body)),
        false => Err(DecodeError::TooLarge { field, found: body.len() as u64, limit: limit as u64 }),
    }
}
