"""Servers that tests of engines share: each is started once for a file's tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.run.services import PrivateSlurm, PrivateSshd


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSshd]:
    """An OpenSSH server on loopback."""
    server = PrivateSshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateSlurm]:
    """A cluster of two nodes."""
    if os.getuid() != 0:
        pytest.skip("Slurm's daemons are started by root alone")
    cluster = PrivateSlurm(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.stop()
