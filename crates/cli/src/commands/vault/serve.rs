//! `tow vault serve`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use towpath_api::ApiError;
use towpath_config::{BytePlace, FilePath, Label, ServerUrl, StoreSettings, parse_bytes};
use towpath_service::byte_place::byte_store;
use towpath_service::state::identity;
use towpath_standalone::vault_service::{VaultService, vault_rules};

use crate::commands::{Context, parse_address};
use crate::notify::{READY, notify};

/// Run a server that keeps vaults
///
/// It sees ciphertext, sizes, and who adds a version when; no name, no content, no key. It can lose what it has, and hide it, but not
/// change it unnoticed. Each version that it acknowledges is on its disk. Versions go only if the vault's deleting key says so.
#[derive(Debug, Args)]
pub struct VaultServe {
    /// Address to listen on; may be given again [default: all addresses, port 4434]
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    listen: Vec<SocketAddr>,
    /// Folder of the vaults [default: 'vaults' where tow keeps its data]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Node that may make vaults here; may be given again. Who may use one, its owner says
    #[arg(long, value_name = "NODE")]
    node: Vec<String>,
    /// Let everybody make vaults here
    #[arg(long)]
    public: bool,
    /// Most bytes that a vault may have, as in 500M or 2T [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    quota: Option<u64>,
    /// Take nothing new, and hand out what is there: for a copy of another server's folder, which is then a holder of its vaults
    #[arg(long, conflicts_with_all = ["node", "public", "quota"])]
    read_only: bool,
    #[command(flatten)]
    packs: PackPlace,
}

/// Where packs of blocks go.
#[derive(Debug, Args)]
struct PackPlace {
    /// Where packs of blocks go: a directory, or s3://BUCKET/PREFIX. The vaults' logs stay in the folder [default: 'packs' in the folder]
    #[arg(long, value_name = "PLACE", value_parser = BytePlace::parse)]
    packs: Option<BytePlace>,
    /// Server of the bucket [default: Amazon's]
    #[arg(long, value_name = "URL", value_parser = parse_server, requires = "packs")]
    packs_endpoint: Option<ServerUrl>,
    /// Region of the bucket [default: us-east-1]
    #[arg(long, value_name = "NAME", value_parser = parse_region, requires = "packs")]
    packs_region: Option<Label>,
    /// File with the keys for the bucket [default: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment]
    #[arg(long, value_name = "FILE", requires = "packs")]
    packs_credentials: Option<PathBuf>,
}

impl PackPlace {
    fn settings(self) -> StoreSettings {
        StoreSettings {
            bytes: self.packs,
            bytes_endpoint: self.packs_endpoint,
            bytes_region: self.packs_region,
            bytes_credentials: self.packs_credentials.map(FilePath),
            ..StoreSettings::default()
        }
    }
}

impl VaultServe {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let mut interrupts = context.signals.interrupts();
        let mut rules = vault_rules(&self.node, self.public, self.quota)?;
        rules.read_only = self.read_only;
        let packs = byte_store(&self.packs.settings())?;
        let folder = self.folder.unwrap_or_else(|| context.home.data().join("vaults"));
        let server =
            VaultService::start(&identity(&context.home)?, &self.listen, &folder, packs, rules).await?;
        let places: Vec<String> = server.places().iter().map(ToString::to_string).collect();
        let first = places.first().cloned().unwrap_or_default();
        match context.output.is_json() {
            true => context.output.object(&VaultServing { event: "listening", places }),
            false => context.output.line(&first),
        }
        if self.node.is_empty() && !self.public && !self.read_only {
            context
                .output
                .print("tow: nobody may make vaults here: name nodes with --node, or give --public");
        }
        notify(READY, "Serving");
        interrupts.next().await;
        Ok(ExitCode::SUCCESS)
    }
}

/// Parses a size with a binary suffix.
fn parse_size(text: &str) -> Result<u64, String> {
    parse_bytes(text).ok_or_else(|| "write bytes, as in 500M, 1.5G or 2T".into())
}

/// Parses a URL of a server.
fn parse_server(text: &str) -> Result<ServerUrl, String> {
    ServerUrl::parse(text).ok_or_else(|| "write a URL of a server, as in https://s3.example.org".into())
}

/// Parses the name of a region.
fn parse_region(text: &str) -> Result<Label, String> {
    Label::parse(text).ok_or_else(|| "write the name of a region, as in eu-central-1".into())
}

/// Output of `--json` when the server can be reached.
#[derive(Debug, Serialize)]
struct VaultServing {
    event: &'static str,
    /// Where, each as NODE@HOST:PORT; the best first.
    places: Vec<String>,
}
