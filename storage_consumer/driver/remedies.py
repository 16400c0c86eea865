"""The next steps that a message names, as commands that can be pasted."""

from __future__ import annotations

import shlex
from dataclasses import replace

from storage_consumer.config.commands import command, reaching, run_command
from storage_consumer.config.settings import Config, Downstream
from storage_consumer.errors import NotReplicable, TableError
from storage_consumer.model import TableName
from storage_consumer.plan.directories import plain_command
from storage_consumer.plan.selection import AT_A_START
from storage_consumer.plan.steps import DdlStep
from storage_consumer.plan.table_decisions import Verb
from storage_consumer.plan.table_words import copy_commands, table_flag

_AGAIN: tuple[Verb, Verb] = ("pause", "reload-done")


def ways_on(step: DdlStep, downstream: Downstream) -> str:
    """Return the next steps after a statement stopped its table; hide passwords of URIs."""
    done, skip, instead = (
        ddl_command(verb, step, downstream) for verb in ("done", "skip", "replace")
    )
    return (
        f"Next steps: if you ran it manually: {done} -- to skip it: {skip} -- to run another statement instead: "
        f"{instead} --sql '...'"
    )


def reason_of(fault: TableError, config: Config) -> str:
    """Return what a fault says, with the commands that it names."""
    if not isinstance(fault, NotReplicable) or not fault.ways:
        return str(fault)
    ways = []
    for when, text in fault.ways:
        verb, *words = shlex.split(text)
        # Settings are read at a start.
        is_start = verb == "run"
        made = run_command(config, *words) if is_start else command(text, config.downstream)
        ways.append(f"{AT_A_START} {when}: {made}" if is_start else f"{when}: {made}")
    return f"{str(fault).rstrip('.')}. Next steps: {' -- '.join(ways)}"


def ddl_command(verb: str, step: DdlStep, downstream: Downstream) -> str:
    """Return ``storage-consumer ddl VERB …`` for a statement."""
    return command(f"ddl {verb} {table_flag(step.name)} --version {step.version}", downstream)


def table_command(verb: Verb, name: TableName, downstream: Downstream) -> str:
    """Return ``storage-consumer table VERB …`` for a table; a copy's TSO is to be filled in."""
    return plain_command(verb, name, shlex.join(reaching(downstream)))


def quarantine_ways(name: TableName, downstream: Downstream) -> str:
    """Return how an operator gets the rows of a table out of the quarantine, and the table on."""
    retry, drop = (
        command(f"quarantine {verb} {table_flag(name)}", downstream) for verb in ("retry", "drop")
    )
    return f"To try them again, run: {retry} -- to give them up: {drop} -- then: {table_command('resume', name, downstream)}"


def cancel_command(name: TableName, downstream: Downstream) -> str:
    """Return ``storage-consumer load cancel …`` for a table."""
    return command(f"load cancel {table_flag(name)}", downstream)


def load_command(name: TableName, downstream: Downstream) -> str:
    """Return ``storage-consumer load …`` for a table; the copy's URI is to be filled in."""
    return f"{copy_commands(name)[0]} {shlex.join(reaching(downstream))}"


def copy_again(name: TableName, downstream: Downstream) -> str:
    """Return how a table goes on that a load has halted for its copy: by that or another.

    None is taken while a load is open.
    """
    return (
        f"If you put that one back, run: {table_command('resume', name, downstream)} -- to load another one: {cancel_command(name, downstream)} "
        f"-- once the consumer has obeyed that, so that the table stands still: {table_command('pause', name, downstream)} -- then export it, "
        f"and load that: {load_command(name, downstream)}"
    )


def missing_table(name: TableName, place: TableName, downstream: Downstream) -> str:
    """Return the message about a table that the target should have. `place`: its name there."""
    there = "" if place == name else f" (as {place})"
    pause, done = (table_command(verb, name, downstream) for verb in _AGAIN)
    return (
        f"the table {name} does not exist in the target{there} at this time. If somebody dropped it, or the source had it before the changefeed began, run: {pause} -- "
        f"then give it a copy of the source. From an export: {done}"
    )


def with_a_way_on(error: str, name: TableName, downstream: Downstream) -> str:
    """Return a halt's message with the command to retry, unless it names a command already."""
    # Not the flag alone: that may be part of what the message quotes of a file.
    # `run` names the file that has the password among those that were given.
    if shlex.join(reaching(replace(downstream, password_in=()))) in error:
        return error
    again = table_command("resume", name, downstream)
    return f"{error.rstrip('.')}. Next steps: to try it again without a restart: {again}"
