"""Executes the notebook of the documents as it is written, and looks at what its cells show. Arguments: the notebook, and the folder of traces."""

import os
import sys

import nbclient
import nbformat

path, traces = sys.argv[1:]
os.symlink(traces, "traces")
notebook = nbformat.read(path, as_version=4)
assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without what it shows"
nbclient.NotebookClient(notebook, timeout=600).execute()

shown = {"charts": 0, "tables": 0, "altair": 0}
for cell in notebook.cells:
    for output in cell.get("outputs", []):
        assert output.output_type != "error" and output.get("name") != "stderr", output
        page = output.get("data", {}).get("text/html", "")
        shown["altair"] += "vegaEmbed" in page
        shown["charts"] += page.count("data:image/svg+xml")
        shown["tables"] += "<table" in page
# Five charts of the workload and those of the curve; the rows, and the data frame.
assert shown["charts"] >= 6 and shown["tables"] >= 2 and shown["altair"] == 1, shown
