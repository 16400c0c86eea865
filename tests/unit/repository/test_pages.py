"""The pages say what the program does: options, differences, errors, exit codes, state tables, rooms, layers, files."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

from storage_consumer import errors
from storage_consumer.cli.status_command import CODES
from storage_consumer.cli.verbs import VERBS
from storage_consumer.config.load import load
from storage_consumer.config.options import BY_KEYWORD, OPTIONS, Option
from storage_consumer.subscribe.destinations import destination_settings
from storage_consumer.target.ddl.catalogue import DIFFERENCES
from storage_consumer.target.state_tables import StateTables
from storage_consumer.watch.report import Health
from tests.harness.pages import PAGES, REFERENCE, ROOT, blocks, inline_code

PACKAGE = ROOT / "storage_consumer"
README_LINES = 150
STAGE = re.compile(r'"(\d) \w+<br/>([\w/]+)/"')
FILE = re.compile(r"(?:[a-z_]+/)*[a-z_]+(?:\.py|/)|(?:tests|conf|docs|storage_consumer|fixtures)/[\w./-]+")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
ESCAPED = re.compile(r"\\([^\w\s])")
DUMPLINGS = {
    *(
        "--complete-insert",
        "--consistency",
        "--filetype",
        "--no-data",
        "--no-views",
        "--output-filename-template",
        "--params",
        "--snapshot",
        "--sql",
    ),
}
SPARKS = {"--conf", "--py-files"}
"""Flags of spark-submit."""


def flat(text: str) -> str:
    """Return a text on one line, without the backslashes by which Markdown takes signs as they are, and without bars."""
    return " ".join(ESCAPED.sub(r"\1", text).replace("|", "/").split())


def reference(name: str) -> str:
    """Return a page that is made from the code."""
    return flat(PAGES[REFERENCE[name]])


def says(page: str, option: Option) -> bool:
    """Return whether a page has an option's name, help and default."""
    flag = f"--{option.name}" if option.flag else option.environment
    default = "" if option.default_text == "none" else option.default_text
    return f"`{flag}`" in page and flat(option.help) in page and flat(default) in page


def test_readme_is_short() -> None:
    """The README can be read in some minutes."""
    assert PAGES["README.md"].count("\n") <= README_LINES


def test_every_option_has_its_line() -> None:
    """Each option stands in the reference with the help and the default that the program has."""
    page = reference("options")
    assert [option.name for option in OPTIONS if not says(page, option)] == []


def test_every_difference_has_its_line() -> None:
    """Each change that may be made to a DDL stands in the reference."""
    page = reference("differences")
    assert [name for name, text in DIFFERENCES.items() if name not in page or flat(text) not in page] == []


def test_every_error_class_is_named() -> None:
    """Each class of the error tree stands where users of the library look, and in the reference."""
    classes = [n for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, errors.StorageConsumerError)]
    pages = [PAGES["docs/guide/python.md"], reference("errors")]
    missing = [name for name in classes for page in pages if name not in page]
    assert set(missing) <= {"StorageConsumerError"}


def test_every_state_table_is_told() -> None:
    """The page of the state schema names each table of it and no others."""
    tables = {table.name for table in StateTables("s").metadata.sorted_tables}
    named = re.findall(r"^\* `(\w+)`:", PAGES["docs/state-schema.md"], re.MULTILINE)
    assert (sorted(named), len(named)) == (sorted(tables), len(set(named)))


def test_picture_shows_the_stages() -> None:
    """The picture of the way of a change has all six stages, each with a folder whose docstring says the same."""
    pictures = blocks("mermaid")
    assert [block.page for block in pictures] == ["docs/architecture.md"]
    for picture in pictures:
        stages = STAGE.findall(picture.text)
        assert {number for number, _ in stages} == set("123456")
        for number, room in stages:
            text = (PACKAGE / room / "__init__.py").read_text(encoding="utf-8")
            assert (ast.get_docstring(ast.parse(text)) or "").startswith(f"({number})")


def test_every_room_is_named() -> None:
    """The page of the architecture names each folder of the package."""
    rooms = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    assert [room for room in rooms if f"`{room}/`" not in PAGES["docs/architecture.md"]] == []


def test_layers_are_those_of_the_contract() -> None:
    """The page of the architecture has the layers that import-linter checks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    (block,) = (block for block in blocks("text") if block.page == "docs/architecture.md")
    assert block.text.splitlines() == layers


def test_named_files_exist() -> None:
    """Each file and folder of the repository that a page names is there."""
    named = {(page, code) for page, code in inline_code() if FILE.fullmatch(code)}
    gone = {(page, name) for page, name in named if not (ROOT / name).exists() and not (PACKAGE / name).exists()}
    assert gone == set()


def test_python_examples_are_valid() -> None:
    """Python examples compile, and give `Consumer` keywords that it knows."""
    calls = [
        node
        for block in blocks("python")
        for node in ast.walk(ast.parse(block.text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Consumer"
    ]
    keywords = {keyword.arg for call in calls for keyword in call.keywords}
    assert keywords
    assert keywords <= set(BY_KEYWORD)


def test_toml_examples_load(tmp_path: Path) -> None:
    """TOML examples are settings that the program takes."""
    examples = blocks("toml")
    assert examples
    for number, example in enumerate(examples):
        table = tomllib.loads(example.text)
        if "upstream-uri" in table:
            keys = {key.replace("-", "_"): value for key, value in table.items()}
            assert destination_settings("orders", keys, {}).users
            continue
        file = tmp_path / f"{number}.toml"
        file.write_text(example.text, encoding="utf-8")
        uris = {
            "upstream_uri": "s3://b/p?protocol=canal-json&enable-tidb-extension=true",
            "downstream_uri": "mysql://h:1/",
        }
        assert load({**uris, "config": file}, {}).config.selecting.routes


def test_named_flags_exist() -> None:
    """Each flag that stands in a sentence is one of the program, of the quickstart, of spark-submit or Dumpling, or of a program below tests/."""
    flags = {f"--{name}" for option in OPTIONS for name in (option.name, *option.aliases)} | SPARKS | DUMPLINGS
    flags |= {f"--{flag.name}" for verb in VERBS.values() for flag in verb.flags} | {"--help", "--version"}
    quickstart = (ROOT / "conf" / "quickstart.sh").read_text(encoding="utf-8")
    flags |= set(FLAG.findall(quickstart.partition("known: ")[2].partition('"')[0]))
    theirs = {
        flag for path in (ROOT / "tests").rglob("*.py") for flag in FLAG.findall(path.read_text(encoding="utf-8"))
    }
    tools = {"docs/performance.md"}
    named = {(page, flag) for page, code in inline_code() for flag in FLAG.findall(code)}
    assert len(named) > 30
    assert {(page, flag) for page, flag in named if flag not in flags | (theirs if page in tools else set())} == set()


def test_words_of_a_status() -> None:
    """The page on monitoring has each first word with its exit code, in the order in which they count."""
    page = PAGES["docs/operations/monitoring.md"]
    codes = {word: int(code) for word, code in re.findall(r"^\| `([a-z-]+)` \| (\d) \|", page, re.MULTILINE)}
    assert codes == {str(health): int(code) for health, code in CODES.items()}
    order = ", ".join(f"`{health}`" for health in Health if health != Health.HEALTHY)
    assert f"the first in this order counts: {order}." in flat(page)
