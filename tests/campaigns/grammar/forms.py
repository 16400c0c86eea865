"""All forms, in the order of the table."""

from __future__ import annotations

from collections.abc import Iterable

from tests.campaigns.grammar.column_forms import column_forms
from tests.campaigns.grammar.form import Form
from tests.campaigns.grammar.index_forms import index_forms
from tests.campaigns.grammar.partition_forms import partition_forms
from tests.campaigns.grammar.table_forms import table_forms


def _distinct(forms: Iterable[Form]) -> tuple[Form, ...]:
    """Each form once: an option may be one of several lists."""
    return tuple({form.name: form for form in forms}.values())


ALL = _distinct([*column_forms(), *index_forms(), *table_forms(), *partition_forms()])
