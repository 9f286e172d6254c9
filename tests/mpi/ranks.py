"""bitcube-mpi against bitcube: the same bytes for any number of ranks, and what happens when a rank dies or fails, when
the job is interrupted, and when ranks see different files.

usage: ranks.py path/to/bitcube path/to/bitcube-mpi path/to/vectors [without-memory]

Without memory: nothing of --max-memory, which a sanitizer's own memory would break.
"""
import json
import math
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

BITCUBE, MPI, VECTORS = (os.path.abspath(word) for word in sys.argv[1:4])
# As root, on fewer cores than ranks, and in containers whose /dev/shm is small or that may not look into other processes.
ENVIRONMENT = dict(os.environ, LC_ALL="C", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMPI_MCA_btl_vader_single_copy_mechanism="none", OMPI_MCA_btl_vader_backing_directory=tempfile.gettempdir(),
                   OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_mpi_yield_when_idle="1",
                   OMPI_MCA_hwloc_base_binding_policy="none")
LIMIT = 120  # seconds; nothing may hang
random = np.random.default_rng(7)


def check(condition, *told):
    if not condition:
        print("FAILED:", *told, file=sys.stderr)
        sys.exit(1)


def run(*words):
    # Without a second for the other ranks when one has ended with an error: by then all is told.
    environment = dict(ENVIRONMENT, OMPI_MCA_odls_base_sigkill_timeout="0")
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=LIMIT, env=environment)


def ranks(count, *words):
    return run("mpirun", "-n", count, MPI, *words)


def apart(one, other):
    """Two ranks with arguments of their own."""
    return run("mpirun", "-n", 1, *one, ":", "-n", 1, *other)


def succeeds(outcome):
    check(outcome.returncode == 0, outcome.args, outcome.stdout, outcome.stderr)
    return outcome


def write_checkpoint(path, tensors, metadata=None):
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, array) in tensors.items():
        content = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_zeros(path, count, *shape):
    """A checkpoint of F32 zeros that takes no space."""
    size = 4 * math.prod(shape)
    header = {f"t{i}": {"dtype": "F32", "shape": shape, "data_offsets": [i * size, (i + 1) * size]} for i in range(count)}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(path, 8 + len(text) + count * size)


def floats(*shape):
    return random.normal(size=shape).astype(np.float32)


def without_time(report):
    return {key: value for key, value in report.items() if key not in ("seconds", "output", "coverage")}


def same_report(one, other):
    mine, theirs = without_time(json.loads(one.stdout)), without_time(json.loads(other.stdout))
    check(mine == theirs, "reports differ", one.args, mine, theirs)


def same_tree(one, other):
    names = sorted(path.name for path in one.iterdir())
    check(names == sorted(path.name for path in other.iterdir()), one, other)
    for name in names:
        check((one / name).read_bytes() == (other / name).read_bytes(), one / name, other / name)


def checkpoints(folder):
    # One tensor is more than all others together, so it is shared by panels; so is the largest of those that are copied.
    one = {"big": ("F32", floats(96, 4160)), "codes": ("I8", random.integers(-9, 9, (3000, 2000)).astype(np.int8)),
           "bias": ("F32", floats(100))}
    for i in range(6):
        one[f"layer{i}"] = ("F16", floats(64 + i, 200).astype(np.float16))
    one["deep"] = ("F32", floats(3, 64 * 7, 130))
    two = {"odd": ("F32", floats(1, 64, 66000)), "empty": ("F32", floats(0, 64)), "last": ("F64", floats(70, 70).astype(np.float64))}
    write_checkpoint(folder / "a.safetensors", one, {"made": "here"})
    write_checkpoint(folder / "b.safetensors", two)
    weights = {name: "a.safetensors" for name in one} | {name: "b.safetensors" for name in two}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    cases = [(["-f", "hif4", "--min-dim", 1], (1, 2, 3, 4)),
             (["-f", "hif4", "--axis", 0, "--min-dim", 1, "--exclude", "deep"], (4,)),
             (["-f", "nvfp4", "--tensor-scale", "--min-dim", 1, "--include", "odd|layer|big"], (3,)),
             (["-f", "mxfp8-e4m3", "--source-type", "bf16", "--axis", -2, "--min-dim", 1], (2,))]
    for number, (options, counts) in enumerate(cases):
        words = ["quantize", index, *options, "--json", "-o"]
        alone = folder / f"alone{number}"
        expected = succeeds(run(BITCUBE, *words, alone))
        for count in counts:
            shared = folder / f"ranks{number}-{count}"
            same_report(succeeds(ranks(count, *words, shared)), expected)
            same_tree(alone, shared)


def arrays(folder):
    source = folder / "w.npy"
    np.save(source, floats(130, 40000))
    for options, count in ([["-f", "hif4", "--axis", 1], 3], [["-f", "nvfp4", "--tensor-scale", "--axis", 0], 2]):
        words = ["quantize", source, *options, "--json", "-o"]
        expected = succeeds(run(BITCUBE, *words, folder / "alone.st"))
        same_report(succeeds(ranks(count, *words, folder / "shared.st")), expected)
        check((folder / "alone.st").read_bytes() == (folder / "shared.st").read_bytes(), words)


def products(folder):
    np.save(folder / "x.npy", floats(37, 200))
    np.save(folder / "y.npy", floats(200, 51))
    np.save(folder / "c.npy", floats(37, 51))
    np.save(folder / "bias.npy", floats(51))
    np.save(folder / "p.npy", random.integers(-8, 8, (7, 33)).astype(np.int8))
    np.save(folder / "q.npy", random.integers(-8, 8, (33, 5)).astype(np.int8))
    succeeds(run(BITCUBE, "quantize", folder / "x.npy", "-f", "hif4", "--axis", 1, "-o", folder / "x.safetensors"))
    succeeds(run(BITCUBE, "quantize", folder / "y.npy", "-f", "hif4", "--axis", 0, "-o", folder / "y.safetensors"))
    cases = [(["x.safetensors", "y.safetensors", "--bias", folder / "bias.npy", "--c", folder / "c.npy"], (1, 4)),
             (["x.npy", "y.npy", "--pre-quant", "QF322B8_PRE", "--scale", "0.05", "--offset", "-3", "--sat", "--relu",
               "--row-max"], (3,)),
             (["p.npy", "q.npy", "--a-type", "s4x2", "--b-type", "s4x2"], (4,))]
    for (a, b, *options), counts in cases:
        for count in counts:
            def words(kind):
                more = [folder / f"max-{kind}.npy"] if options[-1] == "--row-max" else []
                return ["matmul", folder / a, folder / b, *options, *more, "--json", "-o", folder / f"d-{kind}.npy"]
            expected = json.loads(succeeds(run(BITCUBE, *words("alone"))).stdout)
            got = json.loads(succeeds(ranks(count, *words("shared"))).stdout)
            check(expected["sha256"] == got["sha256"] and expected["flags"] == got["flags"], a, count, expected, got)
            for kind in ["d"] + (["max"] if options[-1] == "--row-max" else []):
                check((folder / f"{kind}-alone.npy").read_bytes() == (folder / f"{kind}-shared.npy").read_bytes(), a, kind)


def conformance(folder):
    wrong = folder / "vectors"
    wrong.mkdir()
    lines = pathlib.Path(VECTORS, "e8m0.csv").read_text().splitlines(keepends=True)
    for row in (7, 3000, 6000):
        *given, flags = lines[row].split(",")
        lines[row] = ",".join([*given, "0x01\n"])
    (wrong / "e8m0.csv").write_text("".join(lines))
    (wrong / "odd.csv").write_text("no,known,form\n1,2,3\n")
    for paths, code in ([[VECTORS], 0], [[wrong, pathlib.Path(VECTORS, "fp19_class.csv")], 2], [[wrong / "e8m0.csv"], 1]):
        words = ["conform", *paths, "--first", 2, "--json"]
        expected = run(BITCUBE, *words)
        shared = ranks(3, *words)
        check(expected.returncode == code == shared.returncode, words, shared.returncode, shared.stderr)
        check(json.loads(expected.stdout) == json.loads(shared.stdout), words)


def stimulus(folder):
    for kind, options, count in (["bundle", ["--count", 300, "--format", "readmemh"], 3],
                                 ["bundle", ["--count", 200, "--first", 5, "--illegal", "any"], 2],
                                 ["convert", ["--count", 5000, "--to", "e4m3,fp16"], 4]):
        for name, start in (["alone", [BITCUBE]], ["shared", ["mpirun", "-n", count, MPI]]):
            (folder / name).mkdir(exist_ok=True)
            words = [*start, "gen", kind, *options, "-o", folder / name / "stim", "--coverage", folder / name / "cov.json"]
            succeeds(run(*words))
        same_tree(folder / "alone", folder / "shared")


def rank_of(pid):
    try:
        words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return next((int(word.split(b"=")[1]) for word in words if word.startswith(b"OMPI_COMM_WORLD_RANK=")), None)


def children(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for_lines(process, journal):
    """Until a tensor is finished there."""
    while process.poll() is None:
        if journal.exists() and "\ndone " in journal.read_text():
            return
        time.sleep(0.005)
    check(False, "ended before it could be killed", process.communicate())


def deaths(folder):
    source = folder / "slow.safetensors"
    write_checkpoint(source, {f"t{i:02}": ("F32", floats(256, 1024)) for i in range(60)})
    options = ["quantize", source, "-f", "nvfp4", "--round", "rtz", "--threads", 1, "--json", "-o"]
    expected = folder / "expected.safetensors"
    succeeds(run(BITCUBE, *options, expected))
    total = 60

    def killed(name, start, journal, victim, number=signal.SIGKILL, waits=False):
        output = folder / name
        partial = pathlib.Path(f"{output}.partial")
        process = subprocess.Popen([str(word) for word in [*start, *options, output]], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        wait_for_lines(process, partial / journal)
        pid = victim(process.pid)
        if waits:  # until the others have done what is theirs, and wait for this one
            os.kill(pid, signal.SIGSTOP)
            before = None
            while before != (before := {path: path.stat().st_size for path in partial.glob("*journal")}):
                time.sleep(1)
        os.kill(pid, number)
        out, err = process.communicate(timeout=LIMIT)
        check(process.returncode != 0 and not output.exists() and out == "", name, process.returncode, out[:200], err)
        names = {path.name for path in partial.iterdir()}
        check(names <= {"0.data", "journal", "1.journal", "2.journal"}, names)
        check(not list(folder.glob(".*")), list(folder.glob(".*")))
        return output, err

    def resumed(output, start):
        partial = pathlib.Path(f"{output}.partial")
        journals = [path.read_text() for path in partial.iterdir() if path.name.endswith("journal")]
        finished = sum(text[:text.rfind("\n") + 1].count("\ndone ") for text in journals)
        report = json.loads(succeeds(run(*start, *options, output)).stdout)
        check(0 < finished == report["resumed"] < total, "resumed", report["resumed"], finished)
        check(output.read_bytes() == expected.read_bytes() and not partial.exists(), output)

    def rank(number):
        return lambda pid: next(child for child in children(pid) if rank_of(child) == number)

    three = ["mpirun", "-n", 3, MPI]
    output, err = killed("killed1.safetensors", three, "1.journal", rank(1), waits=True)
    check("rank 1 " in err and "signal 9" in err, err)
    resumed(output, [BITCUBE])
    output, err = killed("killed0.safetensors", three, "1.journal", rank(0))
    check("rank 0 " in err and "signal 9" in err, err)
    resumed(output, ["mpirun", "-n", 2, MPI])
    output, _ = killed("alone.safetensors", [BITCUBE], "journal", lambda pid: pid)
    resumed(output, ["mpirun", "-n", 4, MPI])

    # A rank that reports an error: its files may not have more than 4 MiB.
    output = folder / "failed.safetensors"
    words = " ".join(f"'{word}'" for word in [MPI, *options, output])
    failed = run("mpirun", "--mca", "btl", "self,tcp", "-n", 1, MPI, *options, output, ":", "-n", 1, "sh", "-c", f"ulimit -f 8192; exec {words}")
    check(failed.returncode == 2 and not output.exists(), failed.returncode, failed.stderr)
    check("rank 1: " in failed.stderr and "File too large" in failed.stderr and "is kept in" in failed.stderr, failed.stderr)
    check(failed.stderr.count('{"error"') == 1, failed.stderr)
    resumed(output, [BITCUBE])

    # Ctrl-C ends the job, and a signal to one rank does. On a busy machine ranks may not meet in the half second that they
    # give themselves to say more than by what they were stopped.
    stopped = "stopped by SIGTERM"
    # mpirun waits for a second before it tells its ranks, so they need more to do: 2 GB of zeros.
    options[1] = folder / "long.safetensors"
    write_zeros(options[1], 2000, 256, 1024)
    output, err = killed("interrupted.safetensors", three, "1.journal", lambda pid: pid, signal.SIGINT)
    told = [json.loads(line)["error"] for line in err.splitlines() if line.startswith("{")]
    check(len(told) == 1 and (told[0] == stopped or "cancelled" in told[0] and "is kept in" in told[0]), err)
    output, err = killed("terminated.safetensors", three, "1.journal", rank(1), signal.SIGTERM)
    check("rank 1 " in err and "signal 15" in err, err)
    check('{"error":"rank 1: ' in err and "cancelled" in err or stopped in err, err)
    stimulus = folder / "stimulus"
    stimulus.mkdir()
    process = subprocess.Popen([*map(str, three), "gen", "bundle", "--count", "10000000", "-o", stimulus / "s"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    while sum(rank_of(pid) is not None for pid in children(process.pid)) < 3:
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=LIMIT)
    check(process.returncode != 0 and out == "" and not list(stimulus.iterdir()), process.returncode, out)
    check(err.count("bitcube-mpi: error: ") == 1 and ("gen: cancelled" in err or stopped in err), err)


def misuse(folder):
    for words, told in ([["quantize", folder / "none.safetensors", "-f", "hif4", "-o", folder / "o"], "No such file"],
                        [["quantize", "x", "--goldens", "d"], "unexpected argument '--goldens'"],
                        [["formats"], "choose from quantize, matmul, conform, gen"]):
        outcome = ranks(2, *words)
        check(outcome.returncode == 2 and outcome.stdout == "", words, outcome.returncode, outcome.stdout)
        check(outcome.stderr.count("bitcube-mpi: error: ") == 1 and told in outcome.stderr, outcome.stderr)
    check(succeeds(ranks(2, "--help")).stdout.count("Subcommands:") == 1, "help")


def memory(folder):
    """--max-memory is for each rank: 40 MB of D, of which rank 0 has two copies."""
    np.save(folder / "a.npy", floats(3200, 4))
    np.save(folder / "b.npy", floats(4, 3200))
    words = ["matmul", folder / "a.npy", folder / "b.npy", "--max-memory", "140M", "-o", folder / "d.npy"]
    outcome = ranks(2, *words)
    check(outcome.returncode == 2 and "rank 0: " in outcome.stderr and "--max-memory" in outcome.stderr, outcome.stderr)
    check("more rank" not in outcome.stderr and not (folder / "d.npy").exists(), outcome.stderr)


def strangers(folder):
    """Ranks that do not see the same."""
    told = "sees other files than this one, or was given other arguments"

    def differ(one, other):
        outcome = apart([MPI, *one], [MPI, *other])
        check(outcome.returncode == 2 and outcome.stdout == "" and told in outcome.stderr, one, outcome.stdout, outcome.stderr)

    differ(*[["gen", "convert", "--count", count, "-o", folder / "stim"] for count in (5000, 50)])
    differ(*[["gen", "bundle", "--count", count, "-o", folder / "stim"] for count in (200, 5)])
    for rows in (64, 96):
        np.save(folder / f"{rows}.npy", floats(rows, 64))
    np.save(folder / "w.npy", floats(64, 8))
    differ(*[["quantize", folder / f"{rows}.npy", "-f", "hif4", "-o", folder / "q"] for rows in (64, 96)])
    differ(*[["matmul", folder / f"{rows}.npy", folder / "w.npy", "-o", folder / "d"] for rows in (64, 96)])
    differ(*[["matmul", folder / "64.npy", folder / "w.npy", "--accumulate", how, "-o", folder / "d"] for how in ("fma", "exact")])
    differ(*[["quantize", folder / "64.npy", "-f", "mxfp4", "--round", how, "-o", folder / "q"] for how in ("rne", "rtz")])
    differ(*[["conform", pathlib.Path(VECTORS, name)] for name in ("e8m0.csv", "fp19_class.csv")])
    # A copy that is out of date: only its time tells.
    for name in ("here", "there"):
        (folder / name).mkdir()
        np.save(folder / name / "a.npy", floats(64, 64))
    os.utime(folder / "there" / "a.npy", (1, 1))
    for command in (f"matmul a.npy --c=a.npy '{folder / '64.npy'}'", "quantize a.npy -f hif4"):
        outcome = apart(*[["sh", "-c", f"cd '{folder / name}' && exec '{MPI}' {command} -o '{folder / 'q'}'"]
                          for name in ("here", "there")])
        check(outcome.returncode == 2 and told in outcome.stderr, command, outcome.stdout, outcome.stderr)
    # A file that one rank cannot read as the other does, though its name and size are the same.
    for name, text in (("one", "no,known,form\n"), ("two", pathlib.Path(VECTORS, "e8m0.csv").read_text())):
        (folder / name).write_text(text.ljust(100000, "\n"))
    outcome = apart(*[["sh", "-c", f"exec '{MPI}' conform /dev/fd/9 9< '{folder / name}'"] for name in ("one", "two")])
    check(outcome.returncode == 2 and told in outcome.stderr, outcome.stdout, outcome.stderr)
    check(not [path for path in folder.iterdir() if path.name in ("stim", "q", "d")], "an output appeared")


with tempfile.TemporaryDirectory() as name:
    limits = () if sys.argv[4:] == ["without-memory"] else (memory,)
    for part in (misuse, checkpoints, arrays, products, conformance, stimulus, *limits, strangers, deaths):
        folder = pathlib.Path(name, part.__name__)
        folder.mkdir()
        start = time.time()
        part(folder)
        print(f"{part.__name__}: {time.time() - start:.1f} s", flush=True)
