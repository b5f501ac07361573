//! `tow vault`

mod commit;
mod diff;
mod errors;
mod gc;
mod holders;
mod inspect;
mod mend;
mod opening;
mod passphrase;
mod serve;
mod share;
mod transfer;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use towpath_api::ApiError;

use super::Context;

/// Keep encrypted versions of files and trees on a server that nobody has to trust
///
/// The server sees blocks of ciphertext and their sizes, and can't change, hide or exchange any unnoticed. A new version costs the
/// bytes that changed. Keys are under a passphrase (asked for, or TOW_VAULT_PASSPHRASE) or a key file; whoever loses it loses the data.
#[derive(Debug, Args)]
pub struct VaultCommand {
    #[command(subcommand)]
    command: VaultSubcommand,
    #[command(flatten)]
    which: opening::WhichVault,
}

#[derive(Debug, Subcommand)]
enum VaultSubcommand {
    Init(opening::VaultInit),
    Join(opening::VaultJoin),
    Put(transfer::VaultPut),
    Commit(commit::VaultCommit),
    Get(transfer::VaultGet),
    Restore(transfer::VaultRestore),
    Ls(inspect::VaultLs),
    Log(inspect::VaultLog),
    Diff(diff::VaultDiff),
    Check(inspect::VaultCheck),
    Forget(transfer::VaultForget),
    Revert(mend::VaultRevert),
    Accept(mend::VaultAccept),
    Share(share::VaultShare),
    Holders(holders::VaultHolders),
    Gc(gc::VaultGc),
    Serve(serve::VaultServe),
}

impl VaultCommand {
    pub async fn run(self, context: &Context) -> Result<ExitCode, ApiError> {
        let Self { command, which } = self;
        if let VaultSubcommand::Serve(serve) = command {
            return serve.run(context).await;
        }
        // All else blocks, on the disk and on the network's runtime beside.
        tokio::task::block_in_place(|| match command {
            VaultSubcommand::Init(init) => init.run(context, &which),
            VaultSubcommand::Join(join) => join.run(context, &which),
            VaultSubcommand::Put(put) => put.run(context, &which),
            VaultSubcommand::Commit(commit) => commit.run(context, &which),
            VaultSubcommand::Get(get) => get.run(context, &which),
            VaultSubcommand::Restore(restore) => restore.run(context, &which),
            VaultSubcommand::Ls(ls) => ls.run(context, &which),
            VaultSubcommand::Diff(diff) => diff.run(context, &which),
            VaultSubcommand::Log(log) => log.run(context, &which),
            VaultSubcommand::Check(check) => check.run(context, &which),
            VaultSubcommand::Forget(forget) => forget.run(context, &which),
            VaultSubcommand::Revert(revert) => revert.run(context, &which),
            VaultSubcommand::Accept(accept) => accept.run(context, &which),
            VaultSubcommand::Share(share) => share.run(context, &which),
            VaultSubcommand::Holders(holders) => holders.run(context, &which),
            VaultSubcommand::Gc(gc) => gc.run(context, &which),
            VaultSubcommand::Serve(_) => Ok(ExitCode::SUCCESS),
        })
    }
}
