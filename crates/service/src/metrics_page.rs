//! Counters of the service as Prometheus reads them: text of the exposition format 0.0.4.
//!
//! Names of objects, paths and nodes are not in it: whoever may read how much is transferred need
//! not learn what.

use std::fmt::{Display, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use towpath_store::Leases;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use towpath_api::{ApiError, ErrorKind};
use towpath_content::lock::lock;

use crate::metrics::{Direction, TransferCounts, read};
use crate::state::Service;
use towpath_limits::connection_limits::Excess;

/// The media type of what [`render`] returns.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Readers at once at the TCP address; further ones wait in the kernel.
const READERS: usize = 8;
/// Longest time that one may take.
const READER_TIME: Duration = Duration::from_secs(10);
/// The longest head of a request.
const MAX_HEAD: usize = 8 << 10;
/// After a failed accept (out of descriptors, say).
const PAUSE: Duration = Duration::from_millis(100);

/// All metrics as text.
pub fn render(service: &Service) -> String {
    let (mut page, metrics) = (Page::default(), &*service.metrics);
    page.family("towpath_build_info", "gauge", "The version of the program.");
    page.sample("towpath_build_info", &[("version", &env!("CARGO_PKG_VERSION"))], 1);
    transfers(&mut page, service);
    page.family(
        "towpath_object_bytes_total",
        "counter",
        "Bytes of objects that gets brought, checked and written, by source.",
    );
    page.sample("towpath_object_bytes_total", &[("source", &"peers")], read(&metrics.from_peers));
    page.sample(
        "towpath_object_bytes_total",
        &[("source", &"this_machine")],
        read(&metrics.from_this_machine),
    );
    network(&mut page, service);
    store(&mut page, service);
    page.family(
        "towpath_config_reloads_total",
        "counter",
        "Times the configuration was read again, by result.",
    );
    for (result, count) in ["refused", "done"].iter().zip(&metrics.reloads) {
        page.sample("towpath_config_reloads_total", &[("result", result)], read(count));
    }
    page.family("towpath_local_requests_total", "counter", "Requests of the local API, by call and status.");
    for ((call, status), count) in &*lock(&metrics.local_requests) {
        page.sample("towpath_local_requests_total", &[("call", call), ("status", status)], *count);
    }
    page.text
}

fn transfers(page: &mut Page, service: &Service) {
    type Counter = fn(&TransferCounts) -> &AtomicU64;
    let families: [(&str, &str, Counter); 4] = [
        ("towpath_transfers_begun_total", "Transfers that began.", |transfers| &transfers.begun),
        ("towpath_transfers_done_total", "Transfers that came to their end.", |transfers| &transfers.done),
        ("towpath_transfers_failed_total", "Transfers that failed or were given up.", |transfers| {
            &transfers.failed
        }),
        ("towpath_transfers_refused_total", "Transfers that a limit kept from beginning.", |transfers| {
            &transfers.refused
        }),
    ];
    for (name, help, counter) in families {
        page.family(name, "counter", help);
        for direction in Direction::ALL {
            let count = read(counter(&service.metrics.transfers[direction as usize]));
            page.sample(name, &[("direction", &direction.name())], count);
        }
    }
    page.gauge("towpath_transfers", "Transfers under way.", service.admission.transfers());
    page.gauge("towpath_transfer_memory_bytes", "Memory that they may hold.", service.admission.memory());
    let held = service.read_budget.held();
    page.gauge("towpath_content_memory_bytes", "Content in memory on its way to applications.", held);
}

fn network(page: &mut Page, service: &Service) {
    let (served, fetched) = (&service.metrics.served, &service.metrics.fetched);
    let name = "towpath_network_bytes_total";
    page.family(
        name,
        "counter",
        "Bytes over connections with peers, headers included, by direction and by who dialled.",
    );
    let ways = [("sent", "peer", served.sent()), ("received", "peer", served.received())];
    let own = [("sent", "this_node", fetched.sent()), ("received", "this_node", fetched.received())];
    for (direction, dialled, bytes) in ways.into_iter().chain(own) {
        page.sample(name, &[("direction", &direction), ("dialled_by", &dialled)], bytes);
    }
    let connection_limits = &service.door.limits;
    page.gauge("towpath_peer_connections", "Connections from peers now.", connection_limits.connections());
    page.counter(
        "towpath_peer_connections_accepted_total",
        "Connections from peers that were let in.",
        connection_limits.accepted(),
    );
    let name = "towpath_peer_connections_refused_total";
    page.family(name, "counter", "Connections from peers that were not let in, by limit.");
    for excess in Excess::ALL {
        page.sample(name, &[("limit", &excess.limit())], connection_limits.refused(excess));
    }
}

fn store(page: &mut Page, service: &Service) {
    let leases = service.store.leases().unwrap_or_default();
    let bytes = leases.iter().filter_map(|lease| lease.size).sum();
    page.gauge("towpath_store_leased_objects", "Objects that are put and not done.", leases.len() as u64);
    page.gauge("towpath_store_leased_bytes", "Their bytes, referred to or owned.", bytes);
    let owned = owned_bytes(&service.home.data().join("objects"));
    let cached = service.store.cache().objects().unwrap_or_default();
    page.gauge("towpath_cache_objects", "Owned objects that nobody holds a lease of.", cached.len() as u64);
    let bytes = cached.iter().map(|object| object.size).sum();
    page.gauge("towpath_cache_bytes", "Their bytes.", bytes);
    page.gauge("towpath_store_owned_bytes", "Bytes of whole objects in the store's own files.", owned);
    let limit = service.config().store.cache.0;
    page.gauge("towpath_cache_limit_bytes", "Bytes of owned objects without a lease that may stay.", limit);
    let metrics = &service.metrics;
    page.counter(
        "towpath_cache_evicted_objects_total",
        "Objects that made room for others.",
        read(&metrics.evicted_objects),
    );
    page.counter("towpath_cache_evicted_bytes_total", "Their bytes.", read(&metrics.evicted_bytes));
}

fn owned_bytes(folder: &std::path::Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries.flatten().filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

/// Text that grows family by family.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: u64) {
        let labels: Vec<_> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.text, "{name}{labels} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }
}

fn escaped(value: &dyn Display) -> String {
    value.to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Answers `GET /metrics` at `address` until it is dropped. Returns where that is.
pub async fn serve(
    service: Arc<Service>,
    address: SocketAddr,
) -> Result<(SocketAddr, impl Future<Output = ()> + Send), ApiError> {
    let failed = |error: std::io::Error| {
        let message = format!("listening on {address} for metrics: {error}");
        ApiError::new(ErrorKind::Failed, message).hint("choose another address for metrics.listen")
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    Ok((listener.local_addr().map_err(failed)?, accept(listener, service)))
}

async fn accept(listener: TcpListener, service: Arc<Service>) {
    let permits = Arc::new(Semaphore::new(READERS));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let service = Arc::clone(&service);
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(READER_TIME, answer(stream, service)).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a reader of metrics");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// One request, one answer: all that those who scrape metrics need.
async fn answer(mut stream: TcpStream, service: Arc<Service>) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_HEAD || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let (status, body) = match head.split(|byte| *byte == b' ').take(2).collect::<Vec<_>>()[..] {
        [b"GET", path] if path == b"/metrics" || path.starts_with(b"/metrics?") => {
            let page = tokio::task::spawn_blocking(move || render(&service)).await;
            ("200 OK", page.unwrap_or_default())
        }
        _ => ("404 Not Found", "GET /metrics is all there is\n".into()),
    };
    let len = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.sample("x_total", &[("call", &"a\"b\\c\nd"), ("status", &200)], 3);
        assert_eq!(page.text, "x_total{call=\"a\\\"b\\\\c\\nd\",status=\"200\"} 3\n");
    }
}
