"""Every command that a page shows can be typed: it is run by a test that is named, or says what it needs."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from itertools import pairwise

import pytest

from storage_consumer.cli.arguments import parse
from storage_consumer.cli.verbs import PROGRAM
from storage_consumer.errors import ConfigError
from tests.harness.pages import ROOT, Block, blocks, inline_code

RUN_BY = re.compile(r"run by: (?P<path>tests/[\w/]+\.py)(?:::(?P<test>\w+))?")
NOT_RUN = re.compile(r"not run: needs \S.*")
OTHERS = {
    *("cdc", "curl", "dumpling"),
    "promtool",
    *("apt-get", "export", "install", "pip", "python3", "source", "spark-submit", "tar"),
    *("docker", "kubectl", "mariadb", "mariadb-dump", "systemctl", "systemd-sysusers"),
}
"""First words of commands that are not ours."""
OURS = {"storage_consumer", "tests"}
"""Packages whose modules pages may name."""
SHELLS = ("bash", "console", "sh", "shell")


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command of a block: lines after ``$``, or all lines where there is none; outputs are left out."""
    joined = re.sub(r"\\\n *", " ", text)
    prompted = [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
    for line in prompted or [line for line in joined.splitlines() if line.strip() and not line.startswith("#")]:
        words: list[str] = []
        for word in [*shlex.split(line, comments=True), "&&"]:
            if word == "&&":
                yield words
                words = []
            else:
                words.append(word)


def problem(words: list[str]) -> str:
    """Return what is wrong with a command; empty if it can be typed."""
    program, *rest = words
    if program == PROGRAM:
        return unparsed(rest)
    if program == "bash":
        return "" if (ROOT / rest[0]).is_file() else f"there is no {rest[0]}"
    if program in {"python", "python3"} and rest[:1] == ["-m"] and rest[1].partition(".")[0] in OURS:
        path = ROOT / rest[1].replace(".", "/")
        return "" if path.with_suffix(".py").is_file() or (path / "__main__.py").is_file() else f"no module {rest[1]}"
    if program == "pytest":
        return "" if all((ROOT / word).exists() for word in rest if not word.startswith("-")) else "no such tests"
    return "" if program in OTHERS or program.endswith("/pip") else f"unknown program {program}"


def unparsed(words: list[str]) -> str:
    """Return what the program's own parser says against these words; an ellipsis is a value after a flag, and nothing elsewhere."""
    given = [word for before, word in zip(["", *words], words, strict=False) if word != "…" or before.startswith("--")]
    try:
        parse(given)
    except ConfigError as refusal:
        return str(refusal)
    except SystemExit:
        pass  # --help and --version print and end
    return ""


def unmarked(block: Block) -> str:
    """Return what is wrong with a block's marker; empty if it names a test that is there, or what is needed."""
    if NOT_RUN.fullmatch(block.marker):
        return ""
    named = RUN_BY.fullmatch(block.marker)
    if named is None:
        return "says neither `run by: tests/…` nor `not run: needs …`"
    path = ROOT / named["path"]
    if not path.is_file():
        return f"there is no {named['path']}"
    text = path.read_text(encoding="utf-8")
    tests = {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    if named["test"] and named["test"] not in tests:
        return f"{named['path']} has no {named['test']}"
    verbs = {word for words in commands(block.text) if words[0] == PROGRAM for word in positional(words)}
    missing = [verb for verb in sorted(verbs) if verb != "run" and not re.search(rf"(?<![\w-]){verb}(?![\w-])", text)]
    return f"{named['path']} does not have {missing}" if missing else ""


def positional(words: list[str]) -> list[str]:
    """Return the verb of a command of ours, and what it is to do."""
    return [word for before, word in pairwise(words[:3]) if not {before[0], word[0]} & set("-…")]


@pytest.mark.parametrize("block", blocks(*SHELLS), ids=lambda block: f"{block.page}:{block.text.splitlines()[0]}")
def test_block_of_commands(block: Block) -> None:
    """Each command of a block parses, and the block says which test runs it or what it needs."""
    typed = list(commands(block.text))
    assert typed
    assert [(words, problem(words)) for words in typed if problem(words)] == []
    assert unmarked(block) == ""


def test_commands_in_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    """Each command of ours that stands in a sentence or a table parses too."""
    shown = [
        (page, shlex.split(code))
        for page, code in inline_code()
        if re.match(r"(storage-consumer|bash|python -m) ", code)
    ]
    assert len(shown) > 1
    assert [(page, words, problem(words)) for page, words in shown if problem(words)] == []
    capsys.readouterr()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("storage-consumer run --upstream-uri s3://b/p … --once", ""),
        ("storage-consumer table pause --table a.b --downstream-uri …", ""),
        ("storage-consumer tables", "there is no command `tables`"),
        ("storage-consumer run --oncee", "there is no flag `--oncee`"),
        ("storage-consumer ddl undo", "invalid choice"),
        ("bash conf/missing.sh", "there is no conf/missing.sh"),
        ("python -m tests.missing", "no module tests.missing"),
        ("rm -r x", "unknown program rm"),
    ],
)
def test_wrong_commands_are_seen(line: str, told: str) -> None:
    """The ruler itself."""
    (words,) = commands(line)
    assert told in problem(words)
    assert bool(told) == bool(problem(words))


@pytest.mark.parametrize(
    ("marker", "told"),
    [
        ("", "says neither"),
        ("not run: later", "says neither"),
        ("not run: needs a cloud", ""),
        ("run by: tests/acceptance/test_missing.py::test_a", "there is no"),
        ("run by: tests/acceptance/test_table_verbs.py::test_missing", "has no test_missing"),
        ("run by: tests/acceptance/test_inspect.py::test_a_bucket_in_s3", "does not have"),
        ("run by: tests/acceptance/situations/test_stopped_tables.py::test_halts_by_kind", ""),
    ],
)
def test_wrong_markers_are_seen(marker: str, told: str) -> None:
    """The ruler itself: a marker names a test that is there and knows the verb, or what is needed."""
    block = Block(page="p", marker=marker, language="console", text="$ storage-consumer table reload-done --at 1\n")
    assert told in unmarked(block)
    assert bool(told) == bool(unmarked(block))
