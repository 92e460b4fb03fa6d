"""The stubs have the functions, arguments, methods, keywords and docs that there are. Argument: the stubs in the project. With FLASHWISE_WRITE_DOCS,
their docs and keywords are written."""

import ast
import inspect
import os
import pathlib
import re
import sys

import flashwise
from flashwise import _flashwise

PROTOCOLS = {"ArrowStream", "OwnPolicy", "Array"}
# These have types of their own.
LISTS = ("admission", "spare")


def documented(tree):
    """The functions, classes and methods of the stubs that have docs, each with what it describes."""
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or not hasattr(_flashwise, node.name):
            continue
        there = getattr(_flashwise, node.name)
        yield node, there
        for method in node.body if isinstance(node, ast.ClassDef) else []:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("__"):
                yield method, getattr(there, method.name)


def keywords():
    """The keywords of stages, as the error for another one lists them."""
    try:
        flashwise.simulate([1], "lru", 1, no_such_keyword=1)
    except TypeError as error:
        return sorted(str(error).split("expected one of ")[1].split(", "))
    raise AssertionError("a keyword that does not exist was accepted")


def stages():
    """The lines of the stubs for them."""
    return "".join(f"    {word}: {'_Values' if word in LISTS else '_Value'}\n" for word in keywords())


def written(text):
    """The stubs with the docs of the program."""
    lines = text.splitlines(keepends=True)
    for node, there in sorted(documented(ast.parse(text)), key=lambda pair: -pair[0].lineno):
        string = node.body[0]
        assert isinstance(string, ast.Expr) and isinstance(string.value, ast.Constant), f"{node.name} has no docs"
        indent = " " * string.col_offset
        doc = inspect.cleandoc(there.__doc__)
        end = f"\n{indent}" if "\n" in doc else ""
        doc = re.sub(r"\n(?=.)", f"\n{indent}", doc)
        lines[string.lineno - 1 : string.end_lineno] = [f'{indent}"""{doc}{end}"""\n']
    text = "".join(lines)
    before, rest = text.split("class _Stages(TypedDict, total=False):\n")
    about, rest = rest.split("\n\n", 1)
    return before + "class _Stages(TypedDict, total=False):\n" + about + "\n\n" + stages() + "\n" + rest.split("\n\n", 1)[1]


def main():
    source = pathlib.Path(sys.argv[1])
    if os.environ.get("FLASHWISE_WRITE_DOCS"):
        source.write_text(written(source.read_text()))
    text = source.read_text()
    assert written(text) == text, "the stubs have other docs or keywords: run this test with FLASHWISE_WRITE_DOCS=1"
    tree = ast.parse(text)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")}
    public = {name for name in dir(_flashwise) if not name.startswith("_")}
    assert public == set(functions) | set(classes) - PROTOCOLS, public ^ (set(functions) | set(classes) - PROTOCOLS)
    assert all(hasattr(flashwise, name) for name in flashwise.__all__)
    for name, node in functions.items():
        of_stub = [argument.arg for argument in node.args.args + node.args.kwonlyargs]
        of_stub += [node.args.kwarg.arg] if node.args.kwarg else []
        assert of_stub == list(inspect.signature(getattr(_flashwise, name)).parameters), name
    for name in ("Table", "Trace"):
        of_stub = {node.name for node in classes[name].body if isinstance(node, ast.FunctionDef)}
        methods = {method for method in vars(getattr(_flashwise, name)) if not method.startswith("_")}
        assert methods == {method for method in of_stub if not method.startswith("_")}, (name, methods)
        assert all(hasattr(getattr(_flashwise, name), method) for method in of_stub)


main()
