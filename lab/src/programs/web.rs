//! An nginx with a configuration of its own, for every program that speaks HTTP.
//!
//! Its contact is the address of the directory that it serves; several, with a space between, where it serves at several.

use std::net::Ipv4Addr;
use std::path::Path;

use rustix::process::Signal;

use super::place::{SenderHost, Server, free_port, is_listening};
use super::{Need, ProgramError, need};

/// Its need.
pub const NGINX: Need = Need::Program("nginx", "nginx-light");

/// Serves the files of a directory at the sender's address.
pub fn serve(sender: &SenderHost, root: &Path) -> Result<Server, ProgramError> {
    serve_at(sender, root, &[sender.side.address()])
}

/// The same at each of these addresses.
pub fn serve_at(sender: &SenderHost, root: &Path, addresses: &[Ipv4Addr]) -> Result<Server, ProgramError> {
    let port = free_port()?;
    let config = sender.side.write("nginx.conf", &config(sender, root, addresses, port))?;
    let mut command = sender.side.command(&need(&[NGINX], "nginx")?, "nginx")?;
    command.arg("-p").arg(&sender.side.dir).args(["-e", "stderr", "-c"]).arg(config);
    let contacts: Vec<String> = addresses.iter().map(|address| format!("http://{address}:{port}")).collect();
    let contact = contacts.join(" ");
    Server::start(sender, command, "nginx", Signal::TERM, |id| {
        is_listening(id, port).then(|| contact.clone())
    })
}

/// One worker, in the foreground, and not a file outside its directory.
fn config(sender: &SenderHost, root: &Path, addresses: &[Ipv4Addr], port: u16) -> String {
    let (dir, root) = (sender.side.dir.display(), root.display());
    let user = if rustix::process::getuid().is_root() { "user root;\n" } else { "" };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("    {name}_temp_path {dir}/{name};\n"))
        .collect();
    let listens: String =
        addresses.iter().map(|address| format!("        listen {address}:{port};\n")).collect();
    format!(
        "{user}daemon off;\nworker_processes 1;\npid {dir}/nginx.pid;\nevents {{}}\nhttp {{\n\
         {temporary}    access_log off;\n    sendfile on;\n\
         \x20   server {{\n{listens}        root {root};\n    }}\n}}\n"
    )
}
