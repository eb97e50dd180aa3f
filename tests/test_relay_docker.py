"""The relay to the gateway for engines that cannot mount a socket of this host."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_uniclaw.models.client import Gateway, start_gateway
from pytest_uniclaw.models.grants import GrantRequest
from pytest_uniclaw.sandbox.base import Owner, SandboxSpec
from pytest_uniclaw.sandbox.docker import DockerProvider
from pytest_uniclaw.sandbox.relay import needs_relay, relayed

docker = pytest.importorskip("docker")
pytestmark = pytest.mark.docker

ASK = """
import http.client, json, sys
connection = http.client.HTTPConnection("127.0.0.1", 4010, timeout=30)
message = {"role": "user", "content": "x" * int(sys.argv[3])}
body = {"model": "m", "stream": sys.argv[2] == "stream", "messages": [message]}
connection.request("POST", "/v1/chat/completions", json.dumps(body), {"authorization": "Bearer " + sys.argv[1]})
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"""


@pytest.fixture
def owner() -> Owner:
    return Owner(run="relay-test", worker="main", attempt="a")


@pytest.fixture
def engine() -> Iterator[docker.APIClient]:
    with docker.APIClient() as client:
        yield client


def isolated(owner: Owner, volume: str) -> SandboxSpec:
    return SandboxSpec(owner=owner, image="runtime", relay=volume)


def owned(engine: docker.APIClient) -> list[object]:
    label = {"label": "uniclaw.run=relay-test"}
    return [*engine.containers(all=True, filters=label), *(engine.volumes(filters=label)["Volumes"] or [])]


def test_an_isolated_executor_reaches_the_gateway_through_the_relay(
    tmp_path: Path, owner: Owner, engine: docker.APIClient
) -> None:
    script = tmp_path / "model.yaml"
    script.write_text("turns: [[{say: 'hello through the relay'}]]")
    with start_gateway(tmp_path / "run") as process:
        gateway = Gateway(process.address)
        asked = {"attempt": "a", "role": "executor", "model": "m", "provider": "script", "log": tmp_path / "log"}
        grant = gateway.grant(GrantRequest(**asked, script=script))
        with relayed(owner.run, process.address.agent_socket) as volume:
            spec = isolated(owner, volume)
            with DockerProvider().open(spec) as sandbox:
                for how, size in (("whole", 10), ("stream", 10), ("whole", 3_000_000)):
                    done = sandbox.run(["python3", "-c", ASK, grant.key, how, str(size)], user="agent", seconds=30)
                    assert done.output.startswith(b"200 "), done.output[:500]
                    assert b"hello" in done.output
                mounts = engine.inspect_container(sandbox.container.name)["Mounts"]
                assert [(m["Type"], m["RW"], m["Destination"]) for m in mounts] == [("volume", False, "/run/uniclaw")]
                wrong = sandbox.run(["python3", "-c", ASK, "uck-wrong", "whole", "1"], user="agent", seconds=30)
                assert wrong.output.startswith(b"401 ")
        assert [call.status for call in gateway.calls("a")] == [200, 200, 200]
    assert owned(engine) == []


def test_a_gateway_that_is_gone_ends_the_agents_connection(tmp_path: Path, owner: Owner) -> None:
    with start_gateway(tmp_path / "run") as process, relayed(owner.run, process.address.agent_socket) as volume:
        process.close()
        with DockerProvider().open(isolated(owner, volume)) as sandbox:
            done = sandbox.run(["python3", "-c", ASK, "uck-x", "whole", "1"], user="agent", seconds=30)
    assert b"RemoteDisconnected" in done.output


def test_a_relay_that_is_killed_leaves_a_mark(tmp_path: Path, owner: Owner, engine: docker.APIClient) -> None:
    with start_gateway(tmp_path / "run") as process:
        address = process.address
        with relayed(owner.run, address.agent_socket, ended=address.relay_ended):
            pass
        assert not address.relay_ended.exists(), "it was told to end"
        with relayed(owner.run, address.agent_socket, ended=address.relay_ended):
            assert not address.relay_ended.exists()
            (container,) = engine.containers(filters={"label": "uniclaw.run=relay-test"})
            engine.kill(container["Id"])
            give_up = time.monotonic() + 10
            while not address.relay_ended.exists() and time.monotonic() < give_up:
                time.sleep(0.05)
            assert address.relay_ended.exists()
    assert not address.relay_ended.exists()


def test_many_connections_at_once_keep_apart(tmp_path: Path, owner: Owner) -> None:
    server = socket.socket(socket.AF_UNIX)
    path = tmp_path / "s"
    server.bind(str(path))
    server.listen(64)

    def echo(connection: socket.socket) -> None:
        with connection:
            while data := connection.recv(65536):
                connection.sendall(data)

    def serve() -> None:
        while True:
            try:
                threading.Thread(target=echo, args=(server.accept()[0],), daemon=True).start()
            except OSError:
                return

    threading.Thread(target=serve, daemon=True).start()
    many = """
import socket, threading
failed = []
def talk(n):
    data = bytes([n]) * 200_000
    with socket.create_connection(("127.0.0.1", 4010)) as c:
        threading.Thread(target=c.sendall, args=(data,)).start()
        got = b""
        while len(got) < len(data):
            got += c.recv(65536) or b"!"
    failed.extend([n] if got != data else [])
threads = [threading.Thread(target=talk, args=(n,)) for n in range(1, 33)]
[t.start() for t in threads]; [t.join() for t in threads]
print("failed", failed)
"""
    with relayed(owner.run, path) as volume, DockerProvider().open(isolated(owner, volume)) as sandbox:
        done = sandbox.run(["python3", "-c", many], user="agent", seconds=60)
    server.close()
    assert done.output.strip() == b"failed []"


def test_a_local_engine_needs_no_relay(tmp_path: Path) -> None:
    assert needs_relay() is False
