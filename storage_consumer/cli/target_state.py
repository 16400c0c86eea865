"""The state of a target, opened for one command beside a running consumer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager

from storage_consumer.checkpoint.operator import StateInspector
from storage_consumer.config.load import load_target
from storage_consumer.telemetry import register_secret


@contextmanager
def opened(options: Mapping[str, object], environ: Mapping[str, str], own: Collection[str]) -> Iterator[StateInspector]:
    """Yield the state in the target that `options` and `environ` name; it is closed afterwards.

    `own`: keywords that are the command's own and say nothing about the target. Raises `ConfigError`, and `TargetUnavailable`.
    """
    target = {name: value for name, value in options.items() if name not in own}
    downstream, secrets, hidden = load_target(target, environ)
    for secret in hidden:
        register_secret(secret)
    with closing(StateInspector(downstream, secrets.password)) as found:
        yield found
