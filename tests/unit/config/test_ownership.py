"""Whom a folder is left to, whose content runs with our rights."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage_consumer.config.private_files import writers_of

NOBODY = 65534


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of ours below /tmp, which all may write to and which is sticky."""
    (folder := tmp_path / "home").mkdir(mode=0o755)
    return folder


def test_ours(home: Path) -> None:
    """A folder of ours with files of ours is ours alone, also below a sticky folder that is open to all; so is one that is missing."""
    (home / "code").mkdir()
    (home / "code" / "file").write_text("")
    assert writers_of(home) == ""
    assert writers_of(home / "none" / "deeper") == ""
    home.chmod(0o1777)
    assert writers_of(home / "code") == ""


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o1777])
def test_open_to_others(home: Path, mode: int) -> None:
    """A folder to which its group or all may write is named, itself or inside of it; sticky helps only those inside."""
    home.chmod(mode)
    assert writers_of(home) == f"others may write to {home} (mode {mode:04o})"
    if not mode & 0o1000:
        (home / "code").mkdir(mode=0o700)
        assert writers_of(home / "code") == f"others may write to {home} (mode {mode:04o})"


@pytest.mark.root
def test_content(home: Path) -> None:
    """So is what lies in it: a file that others may write to, unless they may not enter; a link; what belongs to another user."""
    (file := home / "file").write_text("")
    file.chmod(0o664)
    assert writers_of(home) == f"others may write to {file} (mode 0664)"
    home.chmod(0o700)
    assert writers_of(home) == ""
    (link := home / "link").symlink_to(file)
    assert writers_of(home) == f"{link} is a symbolic link"
    link.unlink()
    os.chown(file, NOBODY, NOBODY)
    assert writers_of(home) == f"{file} belongs to another user (number {NOBODY})"


@pytest.mark.root
def test_folder_of_another(home: Path) -> None:
    """A folder that belongs to another user can be given any content by them, whatever its mode; so can what lies in it."""
    (home / "code").mkdir()
    os.chown(home, NOBODY, NOBODY)
    assert writers_of(home / "code") == f"{home} belongs to another user (number {NOBODY})"
    assert writers_of(home / "code" / "none") == f"{home} belongs to another user (number {NOBODY})"
