"""After a round of a replay: is the structure of the target what it has to be?"""

from __future__ import annotations

from tests.harness.corpora import Corpus, Cut
from tests.harness.expectations import replicated, stays_though_dropped
from tests.harness.reference import Moment, moments
from tests.harness.servers import DatabaseServer
from tests.harness.structure_rules import Comparison, against_reference, against_source
from tests.harness.structures import structure_of, tables_of


class StructureCheck:
    """Compares structures while corpora are replayed; what a workload leaves on a server is found out once."""

    def __init__(self, *, against_golden: bool = True) -> None:
        """Nothing is known yet; `against_golden`: whether the columns are held against those that the source told as well."""
        self._against_golden = against_golden
        self._moments: dict[tuple[str, str], tuple[Moment, ...]] = {}
        self.total = Comparison()
        """What was compared since `learn`."""

    def learn(self, corpus: Corpus, server: DatabaseServer) -> None:
        """Find out, on this server, what the workload leaves; the server is empty afterwards."""
        workload = corpus.workload_sql
        if (server.name, workload) not in self._moments:
            self._moments[server.name, workload] = moments(server, workload)
        self.total = Comparison()

    def __call__(self, corpus: Corpus, server: DatabaseServer, cut: Cut, halted: frozenset[str]) -> tuple[str, ...]:
        """All differences at a cut; `halted`: tables that may have stopped, and did."""
        found = structure_of(server)
        golden = corpus.golden(cut) if self._against_golden else ()
        compared = against_source(found, golden, server.kind, halted)
        if reference := self._reference(corpus, server, cut):
            out = self._left_out(corpus, tables_of(found) | tables_of(reference.structure))
            out |= dict.fromkeys(halted, "halted as stated")
            folded = frozenset(table.casefold() for table in out)
            compared += against_reference(found, reference, folded)
            compared += Comparison(left_out=tuple(f"{table}: {why}" for table, why in sorted(out.items())))
        self.total += compared
        return compared.differences

    def _reference(self, corpus: Corpus, server: DatabaseServer, cut: Cut) -> Moment | None:
        """What the workload left at a cut; a recording with cuts of its own is compared at its last one."""
        known = self._moments[server.name, corpus.workload_sql]
        if len(known) == len(corpus.cuts):
            return known[cut.number]
        return known[-1] if cut == corpus.cuts[-1] else None

    def _left_out(self, corpus: Corpus, tables: frozenset[str]) -> dict[str, str]:
        """What can't be the same, with the reason."""
        told = replicated(corpus)
        reasons: dict[str, str] = {}
        for table in tables:
            if table.casefold() not in told:
                reasons[table] = "no file of the bucket speaks of it"
            elif stays_though_dropped(corpus, table):
                reasons[table] = "with table ids as path no file says that its database is dropped"
        return reasons
