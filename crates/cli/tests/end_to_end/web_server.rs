//! Real web servers of a situation: nginx, by http and https, and Python's, which knows no ranges.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::environment::soon;
use crate::machinery::tool;

/// Time in which a server must listen.
const START: Duration = Duration::from_secs(20);

/// A web server over a folder, until it is dropped.
pub struct WebServer {
    child: Child,
    folder: PathBuf,
    port: u16,
    tls_port: u16,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl WebServer {
    /// nginx over `folder`, which may send so many bytes a second on each connection; 0 is no limit.
    pub fn nginx(folder: &Path, rate: u64) -> Self {
        fs::create_dir_all(folder).unwrap();
        let own = folder.with_extension("nginx");
        fs::create_dir_all(&own).unwrap();
        make_certificate(&own);
        let (port, tls_port) = (free_port(), free_port());
        let (own_text, root) = (own.display(), folder.display());
        let config = format!(
            "daemon off; worker_processes 1; pid {own_text}/pid; error_log {own_text}/error.log; user root;\n\
             events {{ worker_connections 64; }}\n\
             http {{ access_log {own_text}/access.log; limit_rate {rate};\n\
             client_body_temp_path {own_text}/a; proxy_temp_path {own_text}/b; fastcgi_temp_path {own_text}/c;\n\
             uwsgi_temp_path {own_text}/d; scgi_temp_path {own_text}/e;\n\
             server {{ listen 127.0.0.1:{port}; listen 127.0.0.1:{tls_port} ssl; root {root};\n\
             location /plainly/ {{ rewrite ^/plainly/(.*) http://127.0.0.1:{port}/$1 redirect; }}\n\
             ssl_certificate {own_text}/cert.pem; ssl_certificate_key {own_text}/key.pem; }} }}\n"
        );
        fs::write(own.join("nginx.conf"), config).unwrap();
        let mut command = Command::new(tool("nginx"));
        command.arg("-c").arg(own.join("nginx.conf")).arg("-e").arg(own.join("error.log"));
        Self::start(command, folder, port, tls_port)
    }

    /// Python's server over `folder`: it answers a question for a range with all of the file.
    pub fn without_ranges(folder: &Path) -> Self {
        let port = free_port();
        let mut command = Command::new(tool("python3"));
        command
            .args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string(), "--directory"])
            .arg(folder);
        Self::start(command, folder, port, 0)
    }

    fn start(mut command: Command, folder: &Path, port: u16, tls_port: u16) -> Self {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let server = Self { child, folder: folder.to_path_buf(), port, tls_port };
        let up = || std::net::TcpStream::connect(("127.0.0.1", port)).ok();
        soon(START, up).expect("a web server listens");
        server
    }

    /// URL of one of its files, without encryption.
    pub fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.port)
    }

    /// The same with encryption, by a certificate that [`WebServer::certificate`] is the root of.
    pub fn tls_url(&self, name: &str) -> String {
        format!("https://localhost:{}/{name}", self.tls_port)
    }

    /// The same, which leads to where there is no encryption.
    pub fn downgraded_url(&self, name: &str) -> String {
        self.tls_url(&format!("plainly/{name}"))
    }

    /// The file with the certificate, to be trusted.
    pub fn certificate(&self) -> String {
        self.folder.with_extension("nginx").join("cert.pem").to_str().unwrap().to_owned()
    }

    /// Number of questions that were answered.
    pub fn answers(&self) -> usize {
        self.log().lines().count()
    }

    /// Its own log, one line for each question.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.with_extension("nginx").join("access.log")).unwrap_or_default()
    }

    /// It ends at once.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Its workers end with it: they notice that nobody is in charge.
        let id = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.end();
    }
}

fn make_certificate(own: &Path) {
    let made = Command::new(tool("openssl"))
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(own.join("key.pem"))
        .arg("-out")
        .arg(own.join("cert.pem"))
        .stderr(Stdio::null())
        .status();
    assert!(made.unwrap().success(), "openssl makes a certificate");
}
