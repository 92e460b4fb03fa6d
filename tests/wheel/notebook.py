"""Executes the notebooks of the examples as written, and checks the output of their cells. Arguments: the folders of notebooks and of traces."""

import os
import pathlib
import sys

import nbclient
import nbformat

folder, traces = sys.argv[1:]
os.symlink(traces, "traces")
# Charts of the workload and of the curve, tables, and charts of Altair.
EXPECTED = {
    "workload": {"charts": 5}, "size": {"charts": 1}, "policy": {"tables": 2, "altair": 1}, "own-policy": {"tables": 1}, "buy": {"text": 1},
}
paths = sorted(pathlib.Path(folder).glob("*.ipynb"))
assert {path.stem for path in paths} == EXPECTED.keys(), paths
for path in paths:
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), f"{path} has outputs"
    nbclient.NotebookClient(notebook, timeout=600).execute()
    shown = {"charts": 0, "tables": 0, "altair": 0, "text": 0}
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error" and output.get("name") != "stderr", output
            page = output.get("data", {}).get("text/html", "")
            shown["altair"] += "vegaEmbed" in page
            shown["charts"] += page.count("data:image/svg+xml")
            shown["tables"] += "<table" in page
            shown["text"] += output.get("name") == "stdout"
    assert all(shown[kind] >= least for kind, least in EXPECTED[path.stem].items()), (path, shown)
