#!/usr/bin/env python3
"""Puts and gets through the daemon of Towpath, with nothing but Python's standard library (3.9).

    tow_api.py SOCKET put FILE              by name: nothing is copied
    tow_api.py SOCKET put-parts FILE        in parts, as they are read; '-' is standard input
    tow_api.py SOCKET put-lines FILE        the same, and chunks end where lines do
    tow_api.py SOCKET put-descriptor FILE   by its open descriptor; '-' is standard input
    tow_api.py SOCKET get TICKET [FIRST-LAST]

A put prints the ticket, a get writes the object, or the bytes FIRST to LAST of it, to standard
output. Exit status: 0 all is well, 1 it failed, 2 wrong usage.
"""

import contextlib
import http.client
import json
import os
import socket
import sys
import zlib

PART = 1 << 20
# Lines of a run, on average.
LINES = 256


class Failed(Exception):
    """What is told to the person."""


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket; an open descriptor can be attached to the first byte."""

    def __init__(self, path, descriptor=None):
        super().__init__("tow")
        self.descriptor = descriptor
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.connect(path)
        except OSError as error:
            raise Failed(f"{path}: {error.strerror}; does 'tow daemon' run?") from error

    def send(self, data):
        if self.descriptor is not None:
            sent = socket.send_fds(self.sock, [data], [self.descriptor])
            self.descriptor, data = None, data[sent:]
        # The daemon may have answered and closed by now.
        if data:
            super().send(data)

    def call(self, method, path, body=None, **headers):
        """Makes a call and returns its response, whose body is still to be read."""
        if isinstance(body, dict):
            headers["Content-Type"] = "application/json"
            body = json.dumps(body)
        self.request(method, path, body, headers)
        response = self.getresponse()
        if response.status >= 400:
            raise Failed(problem(response))
        return response

    def ask(self, *call, **headers):
        """Makes a call and returns its answer."""
        return json.load(self.call(*call, **headers))


def problem(response):
    """What went wrong, in words: problem details (RFC 9457)."""
    body = response.read()
    try:
        details = json.loads(body)
        return "; ".join(details[field] for field in ("detail", "hint") if field in details)
    except (ValueError, TypeError):
        return f"the daemon answered {response.status} {response.reason}"


def open_file(name):
    """A file without a buffer: what has come is handed on at once."""
    return open(0 if name == "-" else name, "rb", buffering=0, closefd=name != "-")


def put(path, name):
    reply = Connection(path).ask("POST", "/v1/put", {"path": os.path.abspath(name)})
    print(reply["ticket"])


def put_parts(path, name):
    put_each(path, name, lambda file: iter(lambda: file.read(PART), b""), "")


def put_lines(path, name):
    """Two versions of the data share the chunks whose lines are the same, wherever these have moved to."""
    put_each(path, name, runs_of_lines, "&boundary=true")


def runs_of_lines(file):
    """Runs of whole lines. Where one ends depends on its last line alone, so that it ends there again
    after an insertion further up."""
    run = []
    for line in file:
        run.append(line)
        if zlib.crc32(line) % LINES == 0:
            yield b"".join(run)
            run = []
    if run:
        yield b"".join(run)


def put_each(path, name, parts, query):
    connection = Connection(path)
    with open_file(name) as file:
        request = {} if name == "-" else {"name": os.path.basename(name)}
        opened = connection.ask("POST", "/v1/puts", request)
        # A receiver can follow from here on.
        print(opened["ticket"], flush=True)
        this = f"/v1/puts/{opened['oid']}"
        try:
            offset = 0
            for part in parts(file):
                offset = connection.ask("POST", f"{this}/data?offset={offset}{query}", part)["size"]
            connection.ask("POST", f"{this}/commit")
        except BaseException:
            # Whoever follows sees an error at once, and not an end. The daemon may be what failed.
            with contextlib.suppress(Failed, OSError, http.client.HTTPException):
                Connection(path).ask("DELETE", this)
            raise


def put_descriptor(path, name):
    with open_file(name) as file:
        connection = Connection(path, descriptor=file.fileno())
        print(connection.ask("POST", "/v1/put-descriptor", Connection="close")["ticket"])


def get(path, ticket, wanted=None):
    headers = {} if wanted is None else {"Range": f"bytes={wanted}"}
    # In the body the ticket stays out of logs.
    response = Connection(path).call("POST", "/v1/content", {"ticket": ticket}, **headers)
    if wanted is not None and response.status != 206:
        raise Failed("the object has no known size yet, so there are no parts of it: get the whole")
    # A body whose length is not known beforehand raises IncompleteRead if it is cut off. Of one whose
    # length is known the standard library leaves it to the caller to count; read1 returns what is
    # there, where read would wait for more.
    expected = response.length
    received = 0
    while received != expected and (part := response.read1(PART)):
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
        received += len(part)
    if expected is not None and received != expected:
        raise Failed(f"cut off after {received} of {expected} bytes: run the same command again")


COMMANDS = {
    "put": (put, 1, 1),
    "put-parts": (put_parts, 1, 1),
    "put-lines": (put_lines, 1, 1),
    "put-descriptor": (put_descriptor, 1, 1),
    "get": (get, 1, 2),
}


def main(words):
    if len(words) < 2 or words[1] not in COMMANDS:
        sys.exit(usage())
    path, (command, least, most), rest = words[0], COMMANDS[words[1]], words[2:]
    if not least <= len(rest) <= most:
        sys.exit(usage())
    try:
        command(path, *rest)
    except (Failed, OSError, http.client.HTTPException) as error:
        name = "" if isinstance(error, Failed) else f"{type(error).__name__}: "
        print(f"tow_api.py: {name}{error}", file=sys.stderr)
        sys.exit(1)


def usage():
    print(__doc__.strip(), file=sys.stderr)
    return 2


if __name__ == "__main__":
    main(sys.argv[1:])
