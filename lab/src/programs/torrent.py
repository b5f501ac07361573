"""Seeds a file, or gets it from one peer, by libtorrent with nothing else of BitTorrent around it.

torrent.py seed ADDRESS PORT TORRENT FILE     makes TORRENT, prints "serving", serves until ended
torrent.py get ADDRESS PEER:PORT TORRENT FILE
"""

import os
import sys
import time

import libtorrent


def session(address, port):
    alone = dict.fromkeys(("enable_dht", "enable_lsd", "enable_upnp", "enable_natpmp"), False)
    return libtorrent.session({
        **alone,
        "listen_interfaces": f"{address}:{port}",
        "alert_mask": libtorrent.alert.category_t.storage_notification,
        "allow_multiple_connections_per_ip": True,
    })


def add(session, torrent, path, **more):
    params = libtorrent.add_torrent_params()
    params.ti = libtorrent.torrent_info(torrent)
    params.ti.rename_file(0, os.path.basename(path))
    params.save_path = os.path.dirname(path)
    if more.get("complete"):
        params.flags |= libtorrent.torrent_flags.seed_mode
    return session.add_torrent(params)


def make(torrent, path):
    files = libtorrent.file_storage()
    libtorrent.add_files(files, path)
    made = libtorrent.create_torrent(files)
    libtorrent.set_piece_hashes(made, os.path.dirname(path))
    with open(torrent, "wb") as out:
        out.write(libtorrent.bencode(made.generate()))


def seed(address, port, torrent, path):
    make(torrent, path)
    running = session(address, port)
    handle = add(running, torrent, path, complete=True)
    while handle.status().state != libtorrent.torrent_status.seeding or not running.is_listening():
        time.sleep(0.01)
    print("serving", flush=True)
    while True:
        time.sleep(3600)


def get(address, peer, torrent, path):
    running = session(address, 0)
    handle = add(running, torrent, path)
    host, port = peer.rsplit(":", 1)
    while handle.status().state in (
        libtorrent.torrent_status.checking_files,
        libtorrent.torrent_status.checking_resume_data,
    ):
        time.sleep(0.005)
    handle.connect_peer((host, int(port)))
    while not handle.is_seed():
        time.sleep(0.005)
    # Pieces that are checked may still be on their way to the disk.
    handle.flush_cache()
    running.pause()
    while True:
        alerts = running.pop_alerts()
        if any(isinstance(alert, libtorrent.cache_flushed_alert) for alert in alerts):
            return
        running.wait_for_alert(100)


if __name__ == "__main__":
    {"seed": seed, "get": get}[sys.argv[1]](*sys.argv[2:])
