"""The examples in the docs of the package print what they show, and every public function has some."""

import doctest
import inspect

import flashwise

# Their examples would write files.
WITHOUT = {"convert", "generate", "pareto", "plot", "sweep"}
runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
finder = doctest.DocTestFinder(recurse=False)
for name in flashwise.__all__:
    there = getattr(flashwise, name)
    if name.startswith("_") or not (inspect.isroutine(there) or inspect.isclass(there)):
        continue
    tests = finder.find(there, name, module=False)
    examples = sum(len(test.examples) for test in tests)
    assert examples > 0 or name in WITHOUT or inspect.isclass(there), f"{name} has no examples"
    for test in tests:
        runner.run(test)
    doc = inspect.getdoc(there)
    if inspect.isroutine(there) and name not in ("plot", "sweep"):
        takes = [word for word in inspect.signature(there).parameters if word != "stages"]
        missing = [word for word in takes if not any(line.split(" : ")[0].strip("*") in (word, *[f"{word}, accesses", f"requests, {word}"]) for line in doc.splitlines())]
        assert not missing, f"{name}: no docs of {missing}"
assert runner.failures == 0 and runner.tries >= 20, (runner.failures, runner.tries)
