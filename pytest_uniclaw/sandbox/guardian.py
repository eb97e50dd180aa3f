"""PID 1 of every container: reaps zombies, ends on ``docker stop``, carries the model API to a Unix socket.

Standard library only; copied into the images and run without ``docker --init``: ``guardian.py [PORT [SOCKET]]``.

* The kernel drops every signal from inside the container that PID 1 does not handle, so no handler is installed:
  SIGTERM and SIGCHLD are blocked and read with ``sigwaitinfo``, and a SIGTERM counts only when its sender is outside
  the pid namespace. No signal from inside ends the container.
* The ready line is printed once the port listens; the first exec finds it open.
* Each direction of a connection holds at most one chunk, so a slow reader slows its writer, and end of stream is
  passed on as a half-close. Without the socket a connection is accepted and closed; the next one tries again.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from _thread import start_new_thread
from select import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, epoll

CHUNK = 65536
MAX_CONNECTIONS = 256
SEND_TIMEOUT = (5).to_bytes(8, sys.byteorder) + bytes(8)  # struct timeval, bounds a connect to a full backlog


class Pipe:
    """One end of a connection: its socket, the other end, and the bytes read here that the other end must write."""

    __slots__ = ("at_end", "half_closed", "mask", "other", "pending", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.other: Pipe = self
        self.pending: memoryview[int] | None = None
        self.at_end, self.half_closed, self.mask = False, False, 0

    def read(self) -> None:
        """Read one chunk unless one is waiting; an error is an end of stream, so the answer still gets through."""
        if self.at_end or self.pending:
            return
        try:
            self.pending = memoryview(self.sock.recv(CHUNK))
        except BlockingIOError:
            return
        except OSError:
            self.pending = None
        self.at_end = not self.pending
        self.hand_over()

    def hand_over(self) -> None:
        """Send what was read here to the other end; after the last byte, half-close that end."""
        try:
            if self.pending:
                self.pending = self.pending[self.other.sock.send(self.pending) :]
            if self.at_end and not self.pending and not self.half_closed:
                self.half_closed = True
                self.other.sock.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return
        except OSError:
            self.pending, self.at_end, self.half_closed = None, True, True


class Forwarder:
    """A single-threaded event loop between a loopback TCP port and a Unix socket."""

    def __init__(self, listener: socket.socket, target: str) -> None:
        self.listener, self.target = listener, target
        self.poll, self.pipes = epoll(), dict[int, Pipe]()
        self.poll.register(listener, EPOLLIN)

    def run(self) -> None:
        """Serve for ever."""
        while True:
            for fd, events in self.poll.poll():
                pipe = self.pipes.get(fd)
                if fd == self.listener.fileno():
                    self.accept()
                elif pipe is not None:  # else closed by an earlier event of the same batch
                    if events & (EPOLLIN | EPOLLHUP | EPOLLERR):
                        pipe.read()
                    if pipe.other.pending and events & (EPOLLOUT | EPOLLHUP | EPOLLERR):
                        pipe.other.hand_over()
                    self.watch(pipe, pipe.other)

    def accept(self) -> None:
        """Take one connection and join it to the Unix socket; without one, or with too many open, close it."""
        opened: list[socket.socket] = []
        try:
            opened.append(self.listener.accept()[0])
            opened.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            if len(self.pipes) >= 2 * MAX_CONNECTIONS:
                raise ConnectionRefusedError
            opened[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, SEND_TIMEOUT)
            opened[1].connect(self.target)
        except OSError:
            for sock in opened:
                sock.close()
            return
        left, right = Pipe(opened[0]), Pipe(opened[1])
        left.other, right.other = right, left
        for pipe in (left, right):
            pipe.sock.setblocking(False)
            self.pipes[pipe.sock.fileno()] = pipe
        self.watch(left, right)

    def watch(self, *ends: Pipe) -> None:
        """Register exactly what each end waits for; close the connection once neither end has anything left to say."""
        if all(end.at_end and not end.pending for end in ends):
            for end in ends:
                del self.pipes[end.sock.fileno()]
                end.sock.close()
            return
        for end in ends:
            mask = (0 if end.at_end or end.pending else EPOLLIN) | (EPOLLOUT if end.other.pending else 0)
            if end.mask and mask != end.mask:
                self.poll.unregister(end.sock)
            if mask and mask != end.mask:
                self.poll.register(end.sock, mask)
            end.mask = mask


def obey_signals() -> None:
    """Reap every dead child; end on a SIGTERM from outside the pid namespace (on any where this is not PID 1)."""
    while True:
        info = signal.sigwaitinfo({signal.SIGTERM, signal.SIGCHLD})
        # si_code 0 is a plain kill(), whose si_pid the kernel fills in; a queued signal could lie about it.
        outside = info.si_code == 0 and info.si_pid == 0
        if info.si_signo == signal.SIGTERM and (outside or os.getpid() != 1):
            os._exit(0)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            continue


def main() -> None:
    """Listen, then start forwarding, then print the ready line and serve signals."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 4010
    target = sys.argv[2] if len(sys.argv) > 2 else "/run/uniclaw/agent.sock"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's own handler would let the container interrupt PID 1
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    listener.setblocking(False)
    start_new_thread(Forwarder(listener, target).run, ())
    sys.stdout.write(f"uniclaw guardian: 127.0.0.1:{listener.getsockname()[1]} -> {target}\n")
    sys.stdout.flush()
    obey_signals()


if __name__ == "__main__":
    main()
