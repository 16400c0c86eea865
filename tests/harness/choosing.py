"""Which corpora a command is asked for: the options that all of these commands share."""

from __future__ import annotations

import argparse
import sys

from tests.harness.corpora import CorpusSource, available, chosen


def words(text: str) -> tuple[str, ...]:
    """What commas separate; blanks around it are left out."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def offer(parser: argparse.ArgumentParser, *, workloads: str = "", variants: str = "") -> None:
    """Give a command the options; `workloads` and `variants` are their defaults."""
    parser.add_argument("--workloads", default=workloads, help="comma-separated; empty: all")
    parser.add_argument("--variants", default=variants, help="comma-separated; empty: all")
    parser.add_argument("--arch", default="", help="classic or new; default: both")


def asked_for(asked: argparse.Namespace) -> tuple[CorpusSource, ...]:
    """The corpora that the options choose; where there are none, that is said."""
    found = chosen(
        available(), workloads=words(asked.workloads), variants=words(asked.variants), archs=words(asked.arch)
    )
    if not found:
        print("no corpus matches; set STORAGE_CONSUMER_CORPORA to the folder of unpacked corpora", file=sys.stderr)
    return found
