"""A look at something outside, with a deadline: whatever happens in it, the others go on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from storage_consumer.doctor.findings import Finding, Outcome, fail, not_looked_at
from storage_consumer.errors import StorageConsumerError

SECONDS = 30.0
"""How long one look may take."""
Facts = TypeVar("Facts")


@dataclass(frozen=True, slots=True)
class Unseen:
    """A look that failed or took too long."""

    why: str


def looked(look: Callable[[], Facts], seconds: float = SECONDS) -> Facts | Unseen:
    """Return what a look sees, or why it sees nothing. One that takes longer than `seconds` is left behind."""
    found: list[Facts] = []
    faults: list[str] = []

    def run() -> None:
        try:
            found.append(look())
        except StorageConsumerError as error:
            faults.append(str(error))
        except Exception as error:  # noqa: BLE001 - whatever a look meets is a finding
            faults.append(f"unexpected {type(error).__name__}: {' '.join(str(error).split())[:300]}")

    thread = threading.Thread(target=run, name="doctor", daemon=True)
    thread.start()
    thread.join(seconds)
    if found:
        return found[0]
    silence = f"no answer within {seconds:g} s: check the address, and whether a firewall or proxy swallows what is sent there"
    return Unseen(faults[0] if faults else silence)


def judged(facts: Facts | Unseen, rules: Mapping[str, Callable[[Facts], Outcome]]) -> Iterator[Finding]:
    """Yield what each rule says of the facts. Of a look that failed the first check fails, and the others were not looked at."""
    for number, (name, rule) in enumerate(rules.items()):
        if not isinstance(facts, Unseen):
            yield Finding(name, rule(facts))
        elif number:
            yield Finding(name, not_looked_at(f"{next(iter(rules))} failed"))
        else:
            yield Finding(name, fail(facts.why))
