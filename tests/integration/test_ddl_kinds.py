"""Every kind of statement on every server: rows, structure and journal are as they must be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.campaigns.kinds.playing import ALL, play
from tests.campaigns.kinds.source import at_the_source
from tests.harness.servers import DatabaseServer, tidb_program

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_every_kind_of_statement(server: DatabaseServer, tmp_path: Path) -> None:
    """Each story ends with its rows and its structure, and the journal says how (D3, D10, D18, D20, D21)."""
    wrong: Mapping[str, tuple[str, ...]] = {
        name: played.problems for name, played in play(server, ALL, tmp_path).items() if played.problems
    }
    assert wrong == {}


def test_names_of_stories_are_their_databases() -> None:
    """No two stories meet in one database."""
    assert len({kind.schema for kind in ALL}) == len(ALL)


if tidb_program():

    def test_the_source_agrees(tidb: DatabaseServer) -> None:
        """TiDB itself takes the stories' statements as they stand, and ends with the rows that the stories say."""
        wrong = {story.name: found for story in ALL if story.to_tidb and (found := at_the_source(tidb, story))}
        assert wrong == {}
