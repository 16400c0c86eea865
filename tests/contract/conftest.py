"""Fixtures of the contract suites."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.rigs import LocalRig, MemoryRig, Rig, S3Rig
from tests.s3_server import S3Server


@pytest.fixture
def bucket(s3: S3Server) -> Iterator[S3Rig]:
    """A bucket of its own, read with read-only credentials."""
    yield S3Rig(s3, f"bucket-{uuid.uuid4().hex}")
    gc.collect()


@pytest.fixture(params=["memory", "file", pytest.param("s3", marks=pytest.mark.server)])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    """Each storage in turn."""
    if request.param == "s3":
        found: Rig = request.getfixturevalue("bucket")
        return found
    return MemoryRig() if request.param == "memory" else LocalRig(tmp_path)
