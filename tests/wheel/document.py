"""Runs the examples of a document as they are written, one after another, in Python and in bash. Arguments: the document, the folder of traces, and the folder
of the program."""

import os
import re
import subprocess
import sys


def main():
    document, traces, program = sys.argv[1:]
    os.symlink(traces, "traces")
    os.environ["PATH"] = f"{program}:{os.environ['PATH']}"
    names = {}
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```$", open(document).read(), re.MULTILINE | re.DOTALL)
    assert blocks, document
    for number, (language, block) in enumerate(blocks):
        if language == "python":
            exec(compile(block, f"{document}, block {number + 1}", "exec"), names)
        else:
            subprocess.run(["bash", "-euo", "pipefail", "-c", block], check=True)


# Processes of a pool import this file again.
if __name__ == "__main__":
    main()
