"""The notebook, executed as a user would: its output says what its text does."""

import os
import pathlib

import nbclient
import nbformat
from conftest import PACKAGE

from sweeps import warm

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOK = ROOT / "src" / "python" / "first_wrong_tensor.ipynb"


def output_of(cell):
    texts = [
        output.get("text") or output["data"].get("text/html") or output["data"]["text/plain"] for output in cell.outputs
    ]
    return "".join(texts)


def test_the_notebook_leads_from_the_first_red_cell_to_the_cause(tmp_path, monkeypatch):
    python = ROOT / ".venv" / "bin" / "python"
    warm.stand_ins(tmp_path, python)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE))
    monkeypatch.setenv("TTRACE_ROOT", str(ROOT))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    client = nbclient.NotebookClient(
        notebook, timeout=1000, kernel_name="python3", resources={"metadata": {"path": ROOT}}
    )
    with warm.server(python):
        client.execute()
    texts = [output_of(cell) for cell in notebook.cells if cell.cell_type == "code"]
    verdict, heat_map, first, tokens, held, cause, mended = texts[-7:]
    assert verdict.startswith("('different',")
    assert heat_map.count("#d6604d") > 10  # red
    rows = heat_map.split("<th style='text-align:left'>")
    assert next(row for row in rows if "#d6604d" in row).startswith("embedding<")
    assert first.startswith("embedding.word_embeddings output, iteration 0, micro-batch 0: rel_err ")
    assert "of 64 tokens differ" in tokens
    assert "24 of 64 tokens differ" in tokens and "hold 1 different row" in held
    assert cause.startswith("other-rows\nembedding.word_embeddings, output, micro-batch 0: ")
    assert "#d6604d" not in mended and "#f4a582" not in mended
