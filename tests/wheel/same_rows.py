"""Python prints what the command line prints, byte for byte. Arguments: the program, and the folder of traces."""

import json
import subprocess
import sys

import flashwise

program, traces = sys.argv[1:]
netsfs = f"{traces}/netsfs.csv.zst"


def printed(*arguments):
    """What the command line prints."""
    ran = subprocess.run([program, *arguments], capture_output=True, check=False)
    assert ran.returncode == 0, (arguments, ran.stderr)
    return ran.stdout.decode()


def refused(*arguments):
    """What the command line says of misuse."""
    ran = subprocess.run([program, *arguments], capture_output=True, check=False)
    assert ran.returncode != 0, arguments
    return ran.stderr.decode().strip().removeprefix("flashwise: ")


flashwise.generate("zipf.arrow", blocks=3000, accesses=20_000, request_blocks="1..4", seed=7)
flashwise.generate("twin.csv", blocks=3000, requests=10_000, read_share=0.5, csv=True)
assert printed("trace", "generate", "--blocks", "3000", "--requests", "10000", "--read-share", "0.5", "--csv") == open("twin.csv").read()
printed("trace", "generate", "again.arrow", "--blocks", "3000", "--accesses", "20000", "--request-blocks", "1..4", "--seed", "7")
assert open("zipf.arrow", "rb").read() == open("again.arrow", "rb").read()

# What options say, and what keywords say; each over one trace or several.
cases = [
    ([netsfs], "--policy lru,larc --size 1%,10%", {"policies": ["lru", "larc"], "sizes": ["1%", "10%"]}),
    (["zipf.arrow"], "", {}),
    (["zipf.arrow", "twin.csv"], "--policy arc --size 1%..3%:1% --warmup 10% --epoch 5000",
     {"policies": "arc", "sizes": "1%..3%:1%", "warmup": "10%", "epoch": 5000}),
    (["zipf.arrow"], "--policy lru,m+,c:cfr=2 --size 400 --spare 7%,28% --erase-unit 16KiB --trim on",
     {"policies": ["lru", "m+", "c:cfr=2"], "sizes": 400, "spare": ["7%", 0.28], "erase_unit": "16KiB", "trim": True}),
    (["zipf.arrow"], "--policy larc --admission none --admission size:max=4KiB..16KiB:x2 --size 10%",
     {"policies": "larc", "admission": ["none", "size:max=4KiB..16KiB:x2"], "sizes": "10%"}),
    (["twin.csv"], "--policy lru --layout log --size 2MiB --erase-unit 64KiB --gc-victim greedy",
     {"policies": "lru", "layout": "log", "sizes": "2MiB", "erase_unit": "64KiB", "gc_victim": "greedy"}),
    (["zipf.arrow"], "--layout b-like --size 64MiB --bucket 256KiB", {"layout": "b-like", "sizes": "64MiB", "bucket": "256KiB"}),
    (["twin.csv"], "--policy lru,larc --size 400,50% --sample 33% --sample-seed 7",
     {"policies": ["lru", "larc"], "sizes": [400, "50%"], "sample": "33%", "sample_seed": 7}),
    (["zipf.arrow"], "--policy sieve --ram 12.5% --arrivals closed:depth=4 --size 400 --block-size 4KiB",
     {"policies": "sieve", "ram": "12.5%", "arrivals": "closed:depth=4", "sizes": 400, "block_size": 4096}),
]
for names, options, keywords in cases:
    table = flashwise.simulate(names, **keywords)
    assert table.to_json() == printed("simulate", *names, *options.split(), "--json"), options
    if "--epoch" not in options:
        assert table.to_csv() == printed("simulate", *names, *options.split(), "--csv"), options
    # The jobs that the options name, as text and as dictionaries.
    lines = printed("simulate", *options.split(), "--print-jobs").splitlines()
    jobs = [json.loads(line) for line in lines]
    assert flashwise.simulate(names, jobs=jobs).to_json() == table.to_json(), options
    assert flashwise.simulate(names, jobs=[row["job"] for row in table.to_dicts()[: len(jobs)]]).to_csv() == table.to_csv()
    # One thread gives the same rows.
    assert flashwise.simulate(names, threads=1, **keywords).to_json() == table.to_json(), options

# Each volume by itself.
with open("volumes.csv", "w") as file:
    file.write("time_us,op,volume,offset_bytes,length_bytes\n")
    for number in range(9000):
        file.write(f"{number},{'read' if number % 3 else 'write'},{'abc'[number % 7 % 3]},{number * number % 997 * 4096 + 512},8192\n")
for options, keywords in [("--policy lru,larc --size 10%", {"policies": ["lru", "larc"], "sizes": "10%"}),
                          ("--policy lru --size 50% --sample 50%", {"policies": "lru", "sizes": "50%", "sample": 0.5}),
                          ("--policy lru --layout log --size 1MiB --erase-unit 64KiB",
                           {"policies": "lru", "layout": "log", "sizes": "1MiB", "erase_unit": "64KiB"})]:
    table = flashwise.simulate("volumes.csv", per_volume=True, **keywords)
    assert table.to_json() == printed("simulate", "volumes.csv", "--per-volume", *options.split(), "--json"), options
    assert len({row["trace"] for row in table.to_dicts()}) == 3
# What was open already is taken apart too.
opened = flashwise.simulate(flashwise.read_trace("volumes.csv"), "lru", "10%", per_volume=True)
assert opened.to_json() == printed("simulate", "volumes.csv", "--per-volume", "--policy", "lru", "--size", "10%", "--json")

# The smallest sample that is accurate enough, which is found alike.
for names, options, keywords in [
    ([netsfs], "--policy lru,larc --size 10% --accuracy 0.02", {"policies": ["lru", "larc"], "sizes": "10%", "accuracy": 0.02}),
    (["twin.csv", "zipf.arrow"], "--size 20% --accuracy 5% --sample-by groups --sample-seed 3",
     {"sizes": "20%", "accuracy": "5%", "sample_by": "groups", "sample_seed": 3}),
]:
    assert flashwise.simulate(names, **keywords).to_json() == printed("simulate", *names, *options.split(), "--json"), options
assert float(flashwise.simulate(netsfs, "lru", "10%", accuracy=0.02).to_dicts()[0]["sample_rate"]) < 1
assert (flashwise.curve(netsfs, sizes="5%,20%", accuracy=0.05).to_csv()
        == printed("curve", netsfs, "--size", "5%,20%", "--accuracy", "0.05", "--csv"))

# A trace that is open gives the rows of the normalised file.
trace = flashwise.read_trace("zipf.arrow")
assert (trace.name, len(trace), trace.block_size_bytes) == ("zipf.arrow", 20_000, 4096)
for options, keywords in [("--layout log --policy lru --size 4MiB --erase-unit 64KiB",
                           {"layout": "log", "policies": "lru", "sizes": "4MiB", "erase_unit": "64KiB"}),
                          ("--policy lru --size 50% --sample 50%", {"policies": "lru", "sizes": "50%", "sample": 0.5})]:
    assert flashwise.simulate(trace, **keywords).to_json() == printed("simulate", "zipf.arrow", *options.split(), "--json")

# The other commands.
assert json.loads(printed("trace", "info", netsfs, "--json")) == [flashwise.info(netsfs)]
assert json.loads(printed("trace", "reuse", "zipf.arrow", "--json")) == flashwise.reuse(trace)
assert json.loads(printed("trace", "reuse", "twin.csv", "--distance", "accesses", "--json")) == flashwise.reuse("twin.csv", distance="accesses")
curve = flashwise.curve("zipf.arrow", ["lru", "s3-fifo"], warmup="10%")
options = ["curve", "zipf.arrow", "--policy", "lru", "--policy", "s3-fifo", "--warmup", "10%"]
assert (curve.to_csv(), curve.to_json()) == (printed(*options, "--csv"), printed(*options, "--json"))
assert flashwise.curve("zipf.arrow", sizes="10%", sample=0.5).to_csv() == printed("curve", "zipf.arrow", "--size", "10%", "--sample", "0.5", "--csv")
pareto = flashwise.pareto("zipf.arrow", ["lru", "larc"], "10%", erase_unit="16KiB")
options = ["pareto", "zipf.arrow", "--policy", "lru,larc", "--size", "10%", "--erase-unit", "16KiB", "--svg", "pareto.svg", "--json"]
assert json.loads(printed(*options)) == list(pareto) and open("pareto.svg").read() == pareto.svg
workload = "read-mb-per-s=160,write-mb-per-s=200,read-hit-ratio=90%,write-hit-ratio=85%,dirty=65%"
lifetime = flashwise.lifetime(cache="slc", storage="mlc:devices=3", workloads=workload)
assert json.loads(printed("lifetime", "--cache", "slc", "--storage", "mlc:devices=3", "--workload", workload, "--json")) == lifetime
open("catalogue.toml", "w").write(printed("advise", "--print-catalogue"))
for options, keywords in [
    ("--latency 1s --years 0", {"latency": "1s", "years": 0}),
    ("--latency 900us --years 0 --policy lru,larc --admission none --write-mode write-back --over-provision 10% --warmup 10%",
     {"latency": "900us", "years": 0, "policies": ["lru", "larc"], "admissions": "none", "write_modes": "write-back",
      "over_provisions": 0.1, "warmup": "10%"}),
]:
    ran = subprocess.run([program, "advise", "twin.csv", "--devices", "catalogue.toml", "--json", *options.split()], capture_output=True, check=False)
    assert json.loads(ran.stdout) == flashwise.advise("twin.csv", devices="catalogue.toml", **keywords), options
example = flashwise.advise("twin.csv", latency="1s", years=0)
assert "example catalogue" in example["cautions"][-1] and example["sentences"]
flashwise.convert("twin.csv", "python.arrow")
printed("trace", "convert", "twin.csv", "program.arrow")
assert open("python.arrow", "rb").read() == open("program.arrow", "rb").read()
listed = [line.split()[0] for line in printed("policies").splitlines() if line and line[0] != " "]
assert len(flashwise.policies()) > 15 and [name for name in listed if name in flashwise.policies()] == flashwise.policies()

# The same words where something is wrong.
open("bad.csv", "w").write("time,op,offset,length\n0,read,x,4096\n")
open("text.txt", "w").write("no trace\n")
for kind, arguments, call in [
    (FileNotFoundError, ["simulate", "none.csv"], lambda: flashwise.simulate("none.csv")),
    (IsADirectoryError, ["simulate", "."], lambda: flashwise.simulate(".")),
    (ValueError, ["simulate", "bad.csv"], lambda: flashwise.simulate("bad.csv")),
    (ValueError, ["simulate", "text.txt"], lambda: flashwise.simulate("text.txt")),
    (ValueError, ["simulate", "zipf.arrow", "--size", "99999999999", "--policy", "lru"],
     lambda: flashwise.simulate("zipf.arrow", "lru", 99999999999)),
    (ValueError, ["simulate", "zipf.arrow", "--sample-seed", "5"], lambda: flashwise.simulate("zipf.arrow", sample_seed=5)),
    (ValueError, ["simulate", "zipf.arrow", "--policy", "fif", "--layout", "in-place"],
     lambda: flashwise.simulate("zipf.arrow", "fif", layout="in-place")),
    (ValueError, ["simulate", "zipf.arrow", "--warmup", "20000"], lambda: flashwise.simulate("zipf.arrow", warmup=20000)),
    (ValueError, ["curve", "zipf.arrow", "--warmup", "20000"], lambda: flashwise.curve("zipf.arrow", warmup=20000)),
    (ValueError, ["advise", "zipf.arrow", "--latency", "1ms", "--years", "0", "--policy", "fif"],
     lambda: flashwise.advise("zipf.arrow", latency="1ms", years=0, policies="fif")),
    (ValueError, ["advise", "zipf.arrow", "--years", "0"], lambda: flashwise.advise("zipf.arrow", years=0)),
    (ValueError, ["lifetime", "--cache", "slc", "--storage", "none", "--workload", workload],
     lambda: flashwise.lifetime(cache="slc", storage="none", workloads=workload)),
]:
    try:
        call()
    except kind as error:
        assert str(error) in refused(*arguments), (str(error), refused(*arguments))
    else:
        raise AssertionError(arguments)
for text, call in [
    ("unknown policy 'lrac' (did you mean 'larc'?)", lambda: flashwise.simulate("zipf.arrow", "lrac")),
    ("unexpected keyword argument 'rem' (did you mean 'ram'?)", lambda: flashwise.simulate("zipf.arrow", rem="5%")),
    ("ram: found 'much', expected a size", lambda: flashwise.simulate("zipf.arrow", ram="much")),
    ("python.arrow: found a file, expected none", lambda: flashwise.convert("twin.csv", "python.arrow")),
    ("trace: found a value of the type int", lambda: flashwise.simulate(5)),
    ("trace: found an empty list, expected one item or more", lambda: flashwise.simulate([])),
    ("policies: found an empty list, expected one item or more, or None", lambda: flashwise.simulate("zipf.arrow", [])),
    ("sizes: found an empty list", lambda: flashwise.curve("zipf.arrow", "lru", [])),
    ("spare: found an empty list", lambda: flashwise.simulate("zipf.arrow", layout="in-place", spare=())),
    ("jobs: found an empty list", lambda: flashwise.simulate("zipf.arrow", jobs=[])),
    ("jobs already describe the runs: remove sizes", lambda: flashwise.simulate("zipf.arrow", sizes="1%", jobs="policy=lru size=1%")),
    ("years: found 101, expected a number of years from 0 to 100", lambda: flashwise.advise("zipf.arrow", latency="1ms", years=101)),
    ("write_modes: found 'back'", lambda: flashwise.advise("zipf.arrow", latency="1ms", years=0, write_modes="back")),
    ("threads: found 0, expected a number from 1 to 256", lambda: flashwise.simulate("zipf.arrow", "lru", threads=0)),
    ("threads: found 0, expected a number from 1 to 256", lambda: flashwise.sweep(traces="zipf.arrow", out="out", policy="lru", threads=0)),
    ("plan: run: policy: found [], expected one value", lambda: flashwise.sweep(traces="zipf.arrow", out="out", policy=[])),
    ("a plan says all that is to be run: found policy beside it", lambda: flashwise.sweep("plan.toml", policy="lru")),
    ("pareto: found admission, expected what flash is made of", lambda: flashwise.pareto("zipf.arrow", admission="size:max=64KiB")),
    ("pareto: found sample, expected", lambda: flashwise.pareto("zipf.arrow", sample="1%")),
]:
    try:
        call()
    except (ValueError, TypeError) as error:
        assert str(error).startswith(text), error
    else:
        raise AssertionError(text)
