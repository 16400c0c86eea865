"""The notebook, run from its first cell to its last one over the bucket that the quickstart leaves."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.harness.corpora import FIXTURES, Corpus
from tests.harness.pages import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.acceptance]
NOTEBOOK = ROOT / "docs" / "guide" / "spark.ipynb"


def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cell fails, tables and numbers are shown, and there is a picture wherever one is drawn."""
    shop = Corpus(FIXTURES / "shop" / "new" / "shop__csv")
    shop.materialise(shop.cuts[-1], tmp_path / "bucket")
    shop.write_config(tmp_path).rename(tmp_path / "changefeed.toml")
    monkeypatch.setenv("STORAGE_CONSUMER_QUICKSTART", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    # A stored notebook has no results, so that a change of it is readable.
    assert not any(cell.get("outputs") for cell in notebook.cells)
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    done = client.execute(env={**os.environ})
    outputs = [output for cell in done.cells for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == sum("plt.show()" in cell.source for cell in notebook.cells) > 0
    told = "".join(output.get("text", "") for output in outputs)
    assert "changes happened" in told
    assert "CREATE TABLE" in told
