"""The stubs have the functions, arguments and methods that there are."""

import ast
import inspect
import pathlib

import flashwise
from flashwise import _flashwise

folder = pathlib.Path(flashwise.__file__).parent
assert (folder / "py.typed").exists()
tree = ast.parse((folder / "_flashwise.pyi").read_text())
functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
public = {name for name in dir(_flashwise) if not name.startswith("_")}
assert public == set(functions) | set(classes) - {"ArrowStream", "OwnPolicy"}, public
assert all(hasattr(flashwise, name) for name in flashwise.__all__)
for name, node in functions.items():
    of_stub = [argument.arg for argument in node.args.args + node.args.kwonlyargs]
    of_stub += [node.args.kwarg.arg] if node.args.kwarg else []
    assert of_stub == list(inspect.signature(getattr(_flashwise, name)).parameters), name
    assert ast.get_docstring(node) and getattr(_flashwise, name).__doc__, name
for name in ("Table", "Trace"):
    of_stub = {node.name for node in classes[name].body if isinstance(node, ast.FunctionDef)}
    methods = {method for method in vars(getattr(_flashwise, name)) if not method.startswith("_")}
    assert methods == {method for method in of_stub if not method.startswith("_")}, (name, methods)
    assert all(hasattr(getattr(_flashwise, name), method) for method in of_stub)
