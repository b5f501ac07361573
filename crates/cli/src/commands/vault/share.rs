//! `tow vault share`

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use towpath_api::ApiError;
use towpath_vault::client::VaultClient;
use towpath_vault::format::NodeId;
use towpath_vault::share::{self, MemberRole, VaultMember};

use super::errors::{api_error, usage};
use super::opening::WhichVault;
use crate::commands::Context;

/// The fewest digits by which a member is named.
const LEAST_DIGITS: usize = 8;

/// Share the vault with other people, list its members, or take their rights away
///
/// Without a member: lists the members, and tells the line that another person joins with. That prints the person's member id, which is
/// shared with here: tow vault share MEMBER, or with --write to put, too. Members never drop versions. After --revoke the server refuses
/// the member, and what is put from then on has a new key. What the member has read, it has.
#[derive(Debug, Args)]
pub struct VaultShare {
    /// The member's id, as 'tow vault join' printed it
    #[arg(value_name = "MEMBER")]
    member: Option<String>,
    /// It may put, too [default: get alone]
    #[arg(long, requires = "member")]
    write: bool,
    /// Take a member's rights away; its first digits are enough
    #[arg(long, value_name = "MEMBER", conflicts_with = "member")]
    revoke: Option<String>,
}

#[derive(Debug, Serialize)]
struct ToldMember {
    event: &'static str,
    member: String,
    role: &'static str,
    /// True for this machine's.
    own: bool,
}

#[derive(Debug, Serialize)]
struct ToldInvitation {
    event: &'static str,
    invitation: String,
}

#[derive(Debug, Serialize)]
struct ToldShare {
    event: &'static str,
    member: String,
    /// None: it has no rights any more.
    role: Option<&'static str>,
    version: u64,
    /// Epoch of the keys that new versions get.
    epoch: u32,
}

impl VaultShare {
    pub fn run(self, context: &Context, which: &WhichVault) -> Result<ExitCode, ApiError> {
        let member = self.member.as_deref().map(member_id).transpose()?;
        let mut vault = which.open(context)?;
        match (member, self.revoke) {
            (Some(node), _) => share_with(context, &mut vault, node, self.write)?,
            (None, Some(prefix)) => revoke(context, &mut vault, &prefix)?,
            (None, None) => list(context, &mut vault)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn member_id(text: &str) -> Result<NodeId, ApiError> {
    text.parse().map_err(|_| {
        usage(format!("'{text}' is no member's id: 64 hexadecimal digits, as 'tow vault join' prints them"))
    })
}

fn share_with(context: &Context, vault: &mut VaultClient, node: NodeId, write: bool) -> Result<(), ApiError> {
    let is_new = share::share(vault, node, write).map_err(api_error)?;
    let role = if write { MemberRole::Writer } else { MemberRole::Reader };
    if context.output.is_json() {
        tell(context, vault, "shared", node, Some(role));
        return Ok(());
    }
    let what = if write { "read and write" } else { "read" };
    let already = if is_new { "" } else { " already" };
    context.output.print(&format!("tow: member {} may {what} the vault{already}", node.short()));
    Ok(())
}

fn revoke(context: &Context, vault: &mut VaultClient, prefix: &str) -> Result<(), ApiError> {
    let members = share::members(vault).map_err(api_error)?;
    let found: Vec<_> = members.iter().filter(|member| member.node.to_string().starts_with(prefix)).collect();
    let node = match found.as_slice() {
        _ if prefix.len() < LEAST_DIGITS => Err(format!("name the member by {LEAST_DIGITS} digits or more")),
        [one] => Ok(one.node),
        [] => Err(format!("no member of this vault has an id that begins with '{prefix}'")),
        _ => Err(format!("several members have an id that begins with '{prefix}'")),
    };
    revoke_member(context, vault, node.map_err(usage)?)
}

fn revoke_member(context: &Context, vault: &mut VaultClient, node: NodeId) -> Result<(), ApiError> {
    share::revoke(vault, node).map_err(api_error)?;
    match context.output.is_json() {
        true => tell(context, vault, "revoked", node, None),
        false => context.output.print(&format!(
            "tow: member {} has no rights any more; what is put from now on has a new key. What it has read, it has",
            node.short()
        )),
    }
    Ok(())
}

fn tell(context: &Context, vault: &VaultClient, event: &'static str, node: NodeId, role: Option<MemberRole>) {
    context.output.object(&ToldShare {
        event,
        member: node.to_string(),
        role: role.map(MemberRole::word),
        version: vault.head().named().number,
        epoch: share::epoch(vault),
    });
}

fn list(context: &Context, vault: &mut VaultClient) -> Result<(), ApiError> {
    let invitation = share::invitation(vault).map_err(api_error)?.to_string();
    for VaultMember { node, role, is_own } in share::members(vault).map_err(api_error)? {
        let (member, role) = (node.to_string(), role.word());
        let own = if is_own { "  (this machine)" } else { "" };
        match context.output.is_json() {
            true => context.output.object(&ToldMember { event: "member", member, role, own: is_own }),
            false => context.output.line(&format!("{role:<10}  {member}{own}")),
        }
    }
    match context.output.is_json() {
        true => context.output.object(&ToldInvitation { event: "invitation", invitation }),
        false => {
            context.output.print(&format!("tow: another person joins with: tow vault join {invitation}"))
        }
    }
    Ok(())
}
