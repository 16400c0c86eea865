"""Fixtures of the contract suites."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.rigs import AzureRig, BucketRig, GcsRig, LocalRig, MemoryRig, Rig, S3Rig
from tests.harness.azure_server import AzureServer
from tests.harness.gcs_server import GcsServer
from tests.harness.s3_server import S3Server


@pytest.fixture
def bucket(s3: S3Server) -> Iterator[S3Rig]:
    """A bucket of its own, read with read-only credentials."""
    yield S3Rig(s3, f"bucket-{uuid.uuid4().hex}")
    gc.collect()


@pytest.fixture
def gcs_bucket(gcs: GcsServer) -> Iterator[GcsRig]:
    """A bucket of its own."""
    yield GcsRig(gcs, f"bucket-{uuid.uuid4().hex}")
    gc.collect()


@pytest.fixture
def container(azure: AzureServer) -> Iterator[AzureRig]:
    """A container of its own, read with a token that may list and read."""
    rig = AzureRig(azure, f"container-{uuid.uuid4().hex}")
    yield rig
    rig.client.close()
    gc.collect()


_SERVED = {"s3": "bucket", "gcs": "gcs_bucket", "azure": "container"}


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.server) for name in _SERVED])
def served(request: pytest.FixtureRequest) -> BucketRig:
    """Each store that is asked over a network in turn."""
    found: BucketRig = request.getfixturevalue(_SERVED[request.param])
    return found


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.server) for name in ("s3", "gcs")])
def ordered(request: pytest.FixtureRequest) -> S3Rig | GcsRig:
    """Each store that can begin a listing at a name in turn."""
    found: S3Rig | GcsRig = request.getfixturevalue(_SERVED[request.param])
    return found


@pytest.fixture(params=["memory", "file", *(pytest.param(name, marks=pytest.mark.server) for name in _SERVED)])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Rig:
    """Each storage in turn."""
    if request.param in _SERVED:
        found: Rig = request.getfixturevalue(_SERVED[request.param])
        return found
    return MemoryRig() if request.param == "memory" else LocalRig(tmp_path)
