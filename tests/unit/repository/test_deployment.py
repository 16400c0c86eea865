"""The examples in conf/ that run the program: each command, variable, key and exit code that they name is there."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from storage_consumer.cli.arguments import parse
from storage_consumer.cli.endings import ExitCode
from storage_consumer.config.load import load
from storage_consumer.config.options import ENVIRONMENT_PREFIX, OPTIONS
from storage_consumer.errors import ConfigError
from tests.harness.pages import RIGHTS

ROOT = Path(__file__).resolve().parents[3]
CONF = ROOT / "conf"
UNITS = sorted((CONF / "systemd").glob("*.service"))
DOCKERFILES = [CONF / "docker" / "Dockerfile", CONF / "kubernetes" / "spark" / "Dockerfile"]
MANIFESTS = sorted(path for path in (CONF / "kubernetes").rglob("*.yaml") if path.name != "kustomization.yaml")
VERSIONS = ("1.30", "1.37")
"""Of Kubernetes: an old one that clouds still offer, and the newest that has schemas."""
DAG = CONF / "airflow" / "storage_consumer_dag.py"
EXAMPLES = [
    *UNITS,
    *DOCKERFILES,
    *MANIFESTS,
    CONF / "docker" / "compose.yaml",
    DAG,
]
VARIABLES = {option.environment for option in OPTIONS}
PROGRAM = "storage-consumer"


def settings(unit: str, key: str) -> list[str]:
    """The values of a key of a unit file, in order."""
    return re.findall(rf"^{key}=(.*)$", unit, re.MULTILINE)


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object of the manifests, with the file that it is in."""
    for path in MANIFESTS:
        for found in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(CONF)}:{found['kind']}", found


def containers(manifest: object) -> Iterator[dict[str, Any]]:
    """All containers of an object, however deep."""
    if isinstance(manifest, Mapping):
        yield from manifest.get("containers", ())
        for value in manifest.values():
            yield from containers(value)


def dag_arguments() -> list[str]:
    """The arguments that the DAG runs the program with."""
    named: dict[str, Any] = {}
    for node in ast.parse(DAG.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named[node.targets[0].id] = node.value
    once, more = named["ONCE"], ast.literal_eval(named["SETTINGS"])
    return [*(ast.literal_eval(each) for each in once.elts if isinstance(each, ast.Constant)), *more]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each way in which an example starts the program: where it stands, and the words after the program's name."""
    for unit in UNITS:
        (line,) = settings(unit.read_text(encoding="utf-8"), "ExecStart")
        path, *words = shlex.split(line)
        assert Path(path).name == PROGRAM
        yield unit.name, words
    for dockerfile in DOCKERFILES:
        (default,) = re.findall(r"^CMD (\[.*\])$", dockerfile.read_text(encoding="utf-8"), re.MULTILINE)
        yield str(dockerfile.relative_to(CONF)), [word for word in ast.literal_eval(default) if word != PROGRAM]
    compose = yaml.safe_load((CONF / "docker" / "compose.yaml").read_text(encoding="utf-8"))
    yield "compose.yaml", compose["services"]["consumer"]["command"]
    for name, manifest in documents():
        for container in containers(manifest):
            yield name, [word for word in container["args"] if word != PROGRAM]
    yield DAG.name, dag_arguments()


COMMANDS = list(commands())


def test_there_are_examples() -> None:
    """The lists above have found what they are for."""
    assert len(UNITS) == 3
    assert len(COMMANDS) >= 9
    assert [path for path in EXAMPLES if not path.is_file()] == []


@pytest.mark.parametrize(("where", "words"), COMMANDS, ids=[where for where, _ in COMMANDS])
def test_commands(where: str, words: list[str]) -> None:
    """Each verb and flag exists."""
    assert words[0] == "run", where
    verb, _ = parse(words)
    assert verb == "run"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(CONF)))
def test_variables(path: Path) -> None:
    """Each of our environment variables exists."""
    named = set(re.findall(rf"\b{ENVIRONMENT_PREFIX}[A-Z_]+", path.read_text(encoding="utf-8")))
    assert named - VARIABLES == set()


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_exit_codes_of_units(unit: Path) -> None:
    """A unit names only codes that there are; a wrong setting never starts anew."""
    text = unit.read_text(encoding="utf-8")
    named = {int(code) for key in ("RestartPreventExitStatus", "SuccessExitStatus") for code in settings(text, key)}
    assert named <= set(ExitCode)
    restarts = bool(settings(text, "Restart"))
    assert (str(int(ExitCode.MISCONFIGURED)) in settings(text, "RestartPreventExitStatus")) == restarts


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_units_keep_their_promises(unit: Path) -> None:
    """A service speaks to systemd; signals reach the program alone; the password is a credential; the system is read-only."""
    text = unit.read_text(encoding="utf-8")
    assert settings(text, "Type") == (["oneshot"] if "once" in unit.name else ["notify"])
    assert settings(text, "KillMode") == ["mixed"]
    assert settings(text, "ProtectSystem") == ["strict"]
    assert settings(text, "NoNewPrivileges") == ["yes"]
    (credential,) = settings(text, "LoadCredential")
    assert f"{ENVIRONMENT_PREFIX}DOWNSTREAM_PASSWORD_FILE=%d/{credential.partition(':')[0]}" in text


def test_the_units_differ_only_where_they_must() -> None:
    """What protects the machine is the same in all three units."""
    hardening = {
        unit.name: [
            line for line in unit.read_text(encoding="utf-8").partition("CapabilityBoundingSet")[2].splitlines() if line
        ]
        for unit in UNITS
    }
    first, *others = hardening.values()
    lasting = [line for line in first if line not in ("[Install]", "WantedBy=multi-user.target")]
    for other in others:
        assert [line for line in other if line not in ("[Install]", "WantedBy=multi-user.target")] == lasting


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("name", "manifest"), [pytest.param(*each, id=each[0]) for each in documents()])
def test_manifests(name: str, manifest: dict[str, Any], version: str) -> None:
    """Each object is what the API of this Kubernetes takes, without unknown fields."""
    kubernetes_validate.validate(manifest, version, strict=True)
    assert name


@pytest.mark.parametrize(("name", "manifest"), [pytest.param(*each, id=each[0]) for each in documents()])
def test_pods_are_restricted(name: str, manifest: dict[str, Any]) -> None:
    """Each container has a read-only root and no rights, as the standard *restricted* asks, and a limit of memory."""
    for container in containers(manifest):
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True, name
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        assert {mount["name"] for mount in container["volumeMounts"]} >= {"settings", "secret", "tmp", "spark"}


def test_settings_of_the_config_map(tmp_path: Path) -> None:
    """The TOML files of the ConfigMap are valid settings, and name the file that the Secret is mounted as."""
    (data,) = [found["data"] for name, found in documents() if name == "kubernetes/configmap.yaml:ConfigMap"]
    (tmp_path / "password").write_text("x", encoding="utf-8")
    for name, text in data.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    given = {"config": [str(tmp_path / name) for name in data]}
    with pytest.raises(ConfigError, match="/run/storage-consumer/target-password cannot be read"):
        load(given, {})
    loaded = load({**given, "downstream_password_file": str(tmp_path / "password")}, {})
    assert loaded.program.log.style == "json"


def test_rights_of_compose() -> None:
    """The account in compose.yaml has the rights of the pages, and no more."""
    granted = (CONF / "docker" / "grants.sql").read_text(encoding="utf-8")
    assert f"GRANT {RIGHTS} ON shop.* TO app@'%';" in granted
    assert "GRANT ALL ON storage_consumer.* TO app@'%';" in granted
    assert granted.count("GRANT") == 2


def test_image() -> None:
    """The image runs as no root, and a signal reaches the program without a shell in between."""
    text = DOCKERFILES[0].read_text(encoding="utf-8")
    last = text.rpartition("FROM ")[2]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert 'ENTRYPOINT ["tini", "--", "storage-consumer"]' in last
    assert "HEALTHCHECK" in last
