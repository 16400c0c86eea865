"""What the facts of the target mean, beyond the settings of its server. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from storage_consumer.amounts import some_of
from storage_consumer.config.commands import command
from storage_consumer.decode.time_zone import converted_zone
from storage_consumer.doctor import server_rules
from storage_consumer.doctor.findings import Outcome, fail, not_looked_at, ok, warn
from storage_consumer.doctor.target_look import TableFacts, TargetFacts
from storage_consumer.downstream.server_look import READ_ONLY, Found
from storage_consumer.plan.table_words import table_flag

_DDL_CONNECTIONS = 8
"""The driver's own: up to four statements at a time, the state, the lease, and a look now and then."""
_SHOWN = 3
_FAR = 0.05
"""Seconds of a round trip from which it shows."""
_CLOCK = 10.0
"""Seconds between two clocks from which it shows."""
_GIB, _MIB = 1 << 30, 1 << 20
_ROOM = 2.0
"""How many times the bucket's size a copy may take at first, with its indexes."""


def reachable(facts: TargetFacts) -> Outcome:
    """Judge that the server took our login."""
    return ok(f"{facts.downstream.address} takes the login of {facts.downstream.user}")


def rights(facts: TargetFacts) -> Outcome:
    """Judge the account's rights on the replicated databases."""
    lacking = {name: rights for name, rights in facts.server.missing.items() if name != facts.downstream.state_schema}
    return _rights(facts, lacking, "tables would halt at the first statement that needs them")


def state_rights(facts: TargetFacts) -> Outcome:
    """Judge the account's rights on the state schema."""
    state = facts.downstream.state_schema
    return _rights(
        facts,
        {name: rights for name, rights in facts.server.missing.items() if name == state},
        "the state cannot be kept",
    )


def _rights(facts: TargetFacts, lacking: Mapping[str, tuple[str, ...]], harm: str) -> Outcome:
    if not lacking:
        return ok(f"{facts.downstream.user} has all rights that are needed")
    said = "; ".join(f"{', '.join(missing)} on {name}" for name, missing in sorted(lacking.items())[:_SHOWN])
    more = f" and {len(lacking) - _SHOWN} more databases" if len(lacking) > _SHOWN else ""
    grants = (facts.server.grants[name] for name in sorted(lacking))
    return fail(f"missing: {said}{more}; {harm}", "Grant them. Rights on single tables are not counted here.", *grants)


def read_only(facts: TargetFacts) -> Outcome:
    """Judge whether the server takes writes."""
    variables = facts.server.variables
    names = [name for name in READ_ONLY if variables.is_on(name)]
    # With SUPER or its like an account passes the plain switch, but not the others.
    strong = [name for name in names if name != "read_only"]
    if strong or (names and not facts.server.passes_read_only):
        # The stronger one first: MySQL's super_read_only also holds the plain one.
        statements = [f"SET GLOBAL {name} = OFF" for name in [*strong, *names] if name != "innodb_read_only"]
        return fail(f"{', '.join(names)} is ON: no row can be written", "Is it a replica? Then point at its primary. Else make it writable.", *dict.fromkeys(statements))  # fmt: skip
    if names:
        return warn("read_only is ON, which this account may pass", "Is it a replica? Then point at its primary: what is written here is not on it.", "SET GLOBAL read_only = OFF")  # fmt: skip
    return ok("it takes writes")


def collation(facts: TargetFacts) -> Outcome:
    """Judge whether the source's collation exists."""
    if not facts.server.has_collation:
        return fail("the collation utf8mb4_bin does not exist there", "Use a server with the character set utf8mb4.")
    return ok("utf8mb4_bin exists; new databases and tables get the source's collation by name")


def names(facts: TargetFacts) -> Outcome:
    """Judge whether the server keeps apart what the source keeps apart."""
    mode = facts.server.variables.every.get("lower_case_table_names", "")
    alike = Counter(name.folded() for name in facts.names)
    twice = sorted(str(name) for name in facts.names if alike[name.folded()] > 1)
    if twice:
        return fail(f"differ only in upper and lower case: {', '.join(twice[:_SHOWN])}", "Give one of them another name with --route.")  # fmt: skip
    return ok(f"no two names differ only in case (lower_case_table_names is {mode or 'not known'})")


def zone(facts: TargetFacts) -> Outcome:
    """Judge whether the server knows the feed's time zone."""
    name = facts.downstream.time_zone
    if not converted_zone(name):
        return ok(f"{name or 'UTC'} needs no time zone tables")
    if facts.server.knows_zone:
        return ok(f"{name} is known there")
    return warn(
        f"{name} is not known there: statements run with its offset of their time, so a new column's default is an hour "
        "off for the other half of the year",
        "Load the time zone tables: mysql_tzinfo_to_sql /usr/share/zoneinfo | mariadb mysql",
    )


def triggers(facts: TargetFacts) -> Outcome:
    """Judge triggers on replicated tables."""
    # A trigger's name counts in the database of its table.
    ours = _on_replicated(facts, facts.server.triggers)
    if not ours:
        return ok("no replicated table has a trigger")
    return warn(
        f"triggers act on every row that is written, and the source has none: {_some(ours)}",
        "Drop them, unless they are meant to be there.",
        *(f"DROP TRIGGER {each.name}" for each in ours),
    )


def events(facts: TargetFacts) -> Outcome:
    """Judge scheduled events in replicated databases."""
    found = facts.server.events
    if not found or not facts.server.variables.is_on("event_scheduler"):
        return ok("no event runs in a replicated database")
    return warn(
        f"events run in replicated databases, and may change rows: {_some(found)}",
        "Switch them off, unless they are meant to run.",
        *(f"ALTER EVENT {each.name} DISABLE" for each in found),
    )


def references(facts: TargetFacts) -> Outcome:
    """Judge foreign keys from outside."""
    found = facts.server.references
    if not found:
        return ok("no table outside refers to a replicated one; foreign keys of the source are kept, and not enforced")
    return warn(
        f"tables outside refer to replicated ones, and are neither checked nor cascaded to: {_some(found)}",
        "Drop these foreign keys, or replicate both tables.",
        *(f"ALTER TABLE {each.table} DROP FOREIGN KEY {each.name.partition('.')[2]}" for each in found),
    )


def connections(facts: TargetFacts) -> Outcome:
    """Judge whether there are enough connections for the workers."""
    variables, needed = facts.server.variables, facts.workers + _DDL_CONNECTIONS
    most, of_user = variables.number("max_connections"), variables.number("max_user_connections")
    if of_user and of_user < needed:
        return warn(f"max_user_connections is {of_user}, and up to {needed} are needed", "Raise it, or lower --worker-count.", f"SET GLOBAL max_user_connections = {needed}")  # fmt: skip
    if most and most - facts.server.connections < needed:
        wanted = facts.server.connections + 2 * needed
        return warn(
            f"{facts.server.connections} of {most} connections are in use, and up to {needed} are needed",
            "Raise the limit, or lower --worker-count.",
            f"SET GLOBAL max_connections = {wanted}",
        )
    return ok(f"room for {needed} connections ({facts.server.connections} in use{f' of {most}' if most else ''})")


def disk(facts: TargetFacts) -> Outcome:
    """Judge the room for what is to come."""
    space = facts.server.space
    used = f"the replicated databases have {_gib(space.used)}"
    if space.free is None:
        return ok(f"{used}; free space is not visible from here")
    text = f"{used}, {_gib(space.free)} are free ({space.seen_by})"
    need = max(_GIB, facts.size * _ROOM - space.used)
    if space.free < need:
        return warn(f"{text}; what is in the bucket may take {_gib(need)} more", "Make room before the first run.")
    return ok(text)


def keys(facts: TableFacts) -> Outcome:
    """Judge keys of existing tables that the source lacks."""
    drifted = {table.name: table.key_drift for table in facts.there.values() if table.key_drift}
    if drifted:
        name, drift = min(drifted.items(), key=lambda item: str(item[0]))
        return fail(
            f"{name}: {drift}{f'; and {len(drifted) - 1} more tables' if len(drifted) > 1 else ''}",
            f"Drop the key; or, if the source has it too: {command(f'table accept-keys {table_flag(name)}', facts.downstream)}",
        )
    views = sorted(str(table.name) for table in facts.there.values() if table.is_view)
    if views:
        return fail(f"views stand where tables are to be: {', '.join(views[:_SHOWN])}", "Drop them, or send the tables elsewhere with --route.")  # fmt: skip
    return ok(f"{len(facts.there):,} of the tables exist; nobody changed the keys of one that was made here")


def tls(facts: TargetFacts) -> Outcome:
    """Judge how rows and password travel to the target."""
    line, address = facts.server.line, facts.downstream.address
    verify = "--ssl-mode verify-identity (and --ssl-ca FILE, unless this machine trusts its CA)"
    if line.is_local:
        return ok(f"{address} is this machine")
    if not line.encrypts:
        return warn(f"rows travel to {address} in plain text", f"Enable TLS on the server, and give {verify}.")
    if not line.verifies:
        return warn(f"TLS to {address}, but nothing verifies that it is the right server", f"Give {verify}.")
    return ok(f"TLS to {address}, and the server is verified")


def distance(facts: TargetFacts) -> Outcome:
    """Judge the time of a round trip."""
    took = facts.server.line.round_trip
    text = f"a round trip to the target takes {took * 1000:.2f} ms"
    return (
        warn(text, "Run the program nearer to the target: each statement waits that long.") if took > _FAR else ok(text)
    )


def clocks(facts: TargetFacts) -> Outcome:
    """Judge the target's clock beside ours."""
    ahead = facts.server.line.ahead
    if abs(ahead) > _CLOCK:
        which = "ahead of" if ahead > 0 else "behind"
        return warn(f"the target's clock is {abs(ahead):.0f} s {which} ours; lag and ages are wrong by as much", "Set both by a time server (chrony, systemd-timesyncd).")  # fmt: skip
    return ok("the target's clock and ours agree")


def binlog(facts: TargetFacts) -> Outcome:
    """Judge the server's session settings and binary log together."""
    return server_rules.binlog(facts.server.variables)


def _on_replicated(facts: TargetFacts, found: tuple[Found, ...]) -> tuple[Found, ...]:
    ours = {f"`{name.schema}`.`{name.table}`".lower() for name in facts.names}
    return tuple(each for each in found if each.table.lower() in ours)


def _some(found: tuple[Found, ...]) -> str:
    return some_of([each.name for each in found], _SHOWN)


def _gib(size: float) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB / 10 else f"{size / _MIB:.1f} MiB"


def _of_server(rule: Callable[..., Outcome]) -> Callable[[TargetFacts], Outcome]:
    return lambda facts: rule(facts.server.variables)


def _local_infile(facts: TargetFacts) -> Outcome:
    return server_rules.local_infile(facts.server.variables, wanted=facts.local_infile)


def _known(rule: Callable[[TargetFacts], Outcome]) -> Callable[[TargetFacts], Outcome]:
    """Return a rule that needs the tables' names."""
    return lambda facts: (
        rule(facts) if facts.names else not_looked_at("the bucket shows no table, or was not looked at")
    )


TARGET: Mapping[str, Callable[[TargetFacts], Outcome]] = {
    "target-reachable": reachable,
    "target-version": _of_server(server_rules.version),
    "target-read-only": read_only,
    "target-rights": _known(rights),
    "target-state-rights": state_rights,
    "target-session": _of_server(server_rules.session),
    "target-packet": _of_server(server_rules.packet),
    "target-local-infile": _local_infile,
    "target-collation": collation,
    "target-names": _known(names),
    "target-time-zone": zone,
    "target-triggers": _known(triggers),
    "target-events": _known(events),
    "target-foreign-keys": _known(references),
    "target-binlog": binlog,
    "target-innodb": _of_server(server_rules.row_format),
    "target-connections": connections,
    "target-disk": disk,
    "network-target": tls,
    "network-round-trip": distance,
    "network-clock": clocks,
}
TABLES: Mapping[str, Callable[[TableFacts], Outcome]] = {"target-keys": keys}
