"""Every kind of server as the source of every kind: equal values are found equal, whatever a server shows of them, and no others."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence

import pytest

from storage_consumer.rows.comparison import VerifyOutcome
from tests.contract.test_verify import EVERY_TYPE, INSERT, ROWS
from tests.contract.verify_rigs import VerifyRig
from tests.harness.servers import KINDS, DatabaseServer

pytestmark = pytest.mark.server
PAIRS = [(source, target) for source in KINDS for target in KINDS]


@pytest.fixture(params=PAIRS, ids="-".join)
def rig(request: pytest.FixtureRequest) -> VerifyRig:
    """Each kind of server as the source of each kind."""
    source, target = request.param
    servers: Sequence[DatabaseServer] = [request.getfixturevalue(kind) for kind in dict.fromkeys((source, target))]
    return VerifyRig(servers[0], servers[-1])


def floats(count: int) -> Iterator[float]:
    """Numbers of four bytes, of every size."""
    drawn = random.Random(1)  # noqa: S311 - the same numbers each time
    while count:
        (number,) = struct.unpack(">f", drawn.getrandbits(32).to_bytes(4))
        if abs(number) <= 3.4028234663852886e38:
            count -= 1
            yield number


@pytest.mark.parametrize("key", [", PRIMARY KEY (id)", "", ", PRIMARY KEY (f)"])
def test_floating_point(rig: VerifyRig, key: str) -> None:
    """All digits are compared, though a server shows six of a FLOAT, and one shows fewer of an expression than of a column."""
    numbers = [*floats(2_000), 0.1, 16777216.0, 123456792.0, 1e-45, 1.17549e-38, 8388609.0]
    rows = [(place, repr(number), repr(number * 1.1)) for place, number in enumerate(numbers)]
    rig.both(
        f"CREATE TABLE t (id INT NOT NULL, f FLOAT NOT NULL, d DOUBLE{key})",
        "INSERT INTO t VALUES (%s, %s, %s)",
        rows=rows,
    )
    rig.at_rest("t")
    found = rig.one("t")
    assert (found.outcome, found.structure, found.differences) == (VerifyOutcome.EQUAL, (), ())
    rig.at_target(
        "UPDATE t SET f = 123456800 WHERE id = 2002", "UPDATE t SET d = d * 1.0000000000000003 WHERE id = 2003"
    )
    assert rig.one("t").outcome is VerifyOutcome.DIFFERENT


@pytest.mark.parametrize("is_keyless", [False, True])
def test_every_type(rig: VerifyRig, *, is_keyless: bool) -> None:
    """The same values are equal; a table without a key is compared by the hashes of its rows, which no server may compute otherwise."""
    # MariaDB's JSON is a text, and so another type where it is the source; as a target it may order members otherwise.
    json = "LONGTEXT COLLATE utf8mb4_bin" if rig.source.kind == "mariadb" else "JSON"
    create = EVERY_TYPE.replace("js JSON", f"js {json}").replace(
        "PRIMARY KEY", "NOT NULL" if is_keyless else "PRIMARY KEY"
    )
    rig.both(create)
    rig.both(INSERT, rows=ROWS)
    rig.at_rest("t")
    found = rig.one("t")
    assert (found.outcome, found.structure, found.differences) == (VerifyOutcome.EQUAL, (), ())
    rig.at_target("UPDATE t SET vc = 'other' WHERE id = 3")
    assert rig.one("t").outcome is VerifyOutcome.DIFFERENT


DOCUMENTS = (
    ('{"a": 1, "b": 2}', '{"b": 2, "a": 1.0}', True),
    ('{"a": 1, "a": 2}', '{"a": 2}', False),
    ('{"x": [{"a": 1, "a": 2}]}', '{"x": [{"a": 2}]}', False),
    ('{"a": "1"}', '{"a": 1}', False),
    ("[1, 2]", "[2, 1]", False),
    ("[" * 1500 + "]" * 1500, "{}", False),
)
"""A text that MariaDB holds, one that the other side holds, and whether they are one document."""


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "mariadb"])
def test_documents_that_are_a_text_in_mariadb(kind: str, request: pytest.FixtureRequest) -> None:
    """Members may be in another order; one that is there twice makes another document, of which servers give out one or the other."""
    rig = VerifyRig(request.getfixturevalue(kind), request.getfixturevalue("mariadb"))
    rig.at_source("CREATE TABLE t (id INT PRIMARY KEY, v JSON)")
    rig.at_target("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT COLLATE utf8mb4_bin)")
    rig.at_source(
        "INSERT INTO t VALUES (%s, %s)", rows=[(place, there) for place, (_, there, _) in enumerate(DOCUMENTS)]
    )
    rig.at_target("INSERT INTO t VALUES (%s, %s)", rows=[(place, here) for place, (here, _, _) in enumerate(DOCUMENTS)])
    rig.at_rest("t")
    found = rig.one("t")
    assert found.structure == ()
    differing = {str(place) for place, (_, _, is_equal) in enumerate(DOCUMENTS) if not is_equal}
    assert {each.key["id"] for each in found.differences} == differing
