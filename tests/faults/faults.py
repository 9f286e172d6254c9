#!/usr/bin/env python3
"""Lets every command of bitcube fail at every place, and looks at what it leaves behind.

faults.py PROGRAM INJECT.so SOURCE [--long] [--only COMMAND] [--limit N]

Each case runs a command once without a fault, which gives the right bytes, and then once for each call of each kind of
fault (see inject.cpp): the process is killed before it, the disk is full, reading fails, memory is short, and so on.
After each run

* each output has its old bytes or its new ones, all of them; if there was no file, there is none or the whole new one;
* the exit code of a run without a fault (0, or 1 where there are differences to tell) means: all outputs are new and
  standard output is complete;
* any other has a message, and leaves nothing else in the directory: neither temporary files nor new directories (of a
  checkpoint, what is finished may stay where the message says so);
* no signal ends the program but the one that was sent, SIGKILL or SIGTERM; inputs are as they were;
* after a kill the same command, run again, gives the right bytes.

Without --long about LIMIT calls of each kind are tried per case (of kill four times as many), spread over all; of memory,
half of them over the last, or all of the last where a case says so. A table of what was tried is printed.
"""
import argparse
import concurrent.futures
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

KINDS = ["kill", "signal", "full", "full:on", "store", "read", "read:on", "interrupt", "short", "memory", "memory:on"]


class Case:
    """A command line; OUT/NAME is a file that it writes, and stands in `outputs`."""

    def __init__(self, line, outputs=(), stdin=None, few=False, named=False, dense=False, code=0):
        self.line, self.outputs, self.stdin = line, list(outputs), stdin
        self.code = code    # of a run without a fault
        self.few = few      # slow, so few faults
        self.named = named  # on a file system without unnamed files
        self.dense = dense  # memory runs out at each of the last places

    def command(self, commands):
        """Its name, with that of a nested command: gen bundle."""
        words = self.line.split()
        nested = " ".join(words[:2])
        return nested if nested in commands else words[0]


READMEMH = ["g.words.hex", "g.state.hex", "g.expected.hex", "g.care.hex", "g.index.csv"]

CASES = [
    Case("quantize W.npy -f hif4 --axis 0 -o OUT/q.st", ["q.st"]),
    Case("quantize W.npy -f hif4 --source-type bf16 --goldens OUT --maxima -o OUT/q.st",
         ["q.st", "golden_fp4.bin", "golden_scale.bin", "golden_max4.bin"]),
    Case("quantize W.npy -f nvfp4 --tensor-scale -o OUT/q.st --json", ["q.st"]),
    Case("quantize M.safetensors -f hif4 --min-dim 1 -o OUT/m.safetensors", ["m.safetensors"]),
    Case("quantize S.safetensors.index.json -f mxfp8-e4m3 --min-dim 1 -o OUT/shards",
         ["shards/a.safetensors", "shards/b.safetensors", "shards/S.safetensors.index.json"]),
    Case("quantize W.npy -f hif4 --axis 0 -o OUT/q.st", ["q.st"], named=True),
    Case("dequantize Q.st -o OUT/d.npy", ["d.npy"]),
    Case("convert W.npy --to e4m3 --sat -o OUT/c.npy", ["c.npy"]),
    Case("convert /dev/stdin --to bf16 -o OUT/c.npy", ["c.npy"], stdin="W.npy"),
    Case("matmul X.st Q.st --pre-quant QF322B8_PRE --scale 0.05 --sat --row-max OUT/r.npy --group-max 8:OUT/g.npy "
         "-o OUT/d.npy", ["d.npy", "r.npy", "g.npy"]),
    Case("matmul A.npy B.npy -o OUT/d.npy", ["d.npy"]),
    Case("matmul L.npy R.npy --threads 2 -o OUT/d.npy", ["d.npy"], dense=True),
    Case("quantize L.npy -f hif4 --threads 2 -o OUT/q.st", ["q.st"]),
    Case("postprocess ACC.npy --pre-quant QF322B8_PRE --scale 0.05 --sat -o OUT/d.npy", ["d.npy"]),
    Case("vectors --what e8m0 --count 50 -o OUT/v.csv", ["v.csv", "v.csv.meta.json"]),
    Case("asm first.s -o OUT/p.bin", ["p.bin"]),
    Case("run w1.s --trace OUT/t.jsonl --dump-state OUT/s.json", ["t.jsonl", "s.json"]),
    Case("run first.s --load-state STATE.json --dump-state OUT/s.json", ["s.json"]),
    Case("diff C.npy DUT.npy --format e4m3 --from-array W.npy --sat --report OUT/r.html", ["r.html"], code=1),
    Case("report W.npy --formats hif4,mxfp4 -o OUT/r.html", ["r.html"]),
    Case("report M.safetensors --formats nvfp4:tensor-scale --min-dim 1 -o OUT/r.html --json", ["r.html"]),
    Case("report --golden C.npy --dut DUT.npy --format e4m3 -o OUT/r.html", ["r.html"], code=1),
    Case("gen convert --to e4m3 --from fp16,bf16 --count 40 -o OUT/g.csv --coverage OUT/c.json", ["g.csv", "c.json"]),
    Case("gen postprocess --mode REQ8 --count 40 -o OUT/g.csv", ["g.csv"]),
    Case("gen bundle --count 4 --max-dim 8 -o OUT/g.s", ["g.s"]),
    Case("gen bundle --count 4 --max-dim 8 --format readmemh -o OUT/g --coverage OUT/c.txt", READMEMH + ["c.txt"]),
    # These write to standard output only.
    Case("diff Q.safetensors DUT.safetensors --source W.npy", code=1),
    Case("diff C.npy C.npy --format e4m3 --json"),
    Case("explain convert --to e4m3 1.0625"),
    Case("explain quantize W.npy --format nvfp4 --tensor-scale --axis 0 --at 1,2"),
    Case("explain matmul X.st Q.st --at 1,2"),
    Case("explain postprocess ACC.npy --at 1,2 --pre-quant QF322B8_PRE --scale 0.05 --sat"),
    Case("explain word 0x0"),
    Case("explain fault w1.s"),
    Case("convert --to e4m3 1.0625"),
    Case("inspect M.safetensors --against M.safetensors"),
    Case("conform v.csv"),
    Case("disasm p.bin"),
    Case("formats"),
    Case("completion bash"),
    Case("study gaussian --samples 4096", few=True),
    Case("demo", few=True),
]


def npy(path, descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, bytes_) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def floats(count, seed):
    return struct.pack(f"<{count}f", *(((i * 7919 + seed * 104729) % 2003 - 1001) / 256 for i in range(count)))


def make_inputs(directory, program, source):
    npy(directory / "W.npy", "<f4", (96, 40), floats(96 * 40, 1))
    npy(directory / "A.npy", "<f4", (9, 70), floats(9 * 70, 2))
    npy(directory / "B.npy", "<f4", (70, 11), floats(70 * 11, 3))
    npy(directory / "L.npy", "<f4", (300, 64), floats(300 * 64, 9))
    npy(directory / "R.npy", "<f4", (64, 200), floats(64 * 200, 10))
    npy(directory / "X.npy", "<f4", (8, 96), floats(8 * 96, 4))
    npy(directory / "ACC.npy", "<f4", (12, 32), floats(12 * 32, 5))
    a = {"a.weight": ("F32", [6, 64], floats(6 * 64, 6)), "a.bias": ("F32", [64], floats(64, 7))}
    b = {"b.weight": ("F32", [4, 70], floats(4 * 70, 8))}
    safetensors(directory / "M.safetensors", {**a, **b})
    safetensors(directory / "a.safetensors", a)
    safetensors(directory / "b.safetensors", b)
    index = {"metadata": {}, "weight_map": {**{n: "a.safetensors" for n in a}, **{n: "b.safetensors" for n in b}}}
    (directory / "S.safetensors.index.json").write_text(json.dumps(index))
    for name in ("first.s", "w1.s"):
        shutil.copy(source / "examples" / "programs" / name, directory / name)
    for line in ("convert W.npy --to e4m3 --sat -o C.npy", "quantize W.npy -f hif4 --axis 0 -o Q.st",
                 "quantize W.npy -f hif4 --axis 0 -o Q.safetensors", "quantize X.npy -f hif4 --axis 1 -o X.st",
                 "vectors --what e8m0 --count 50 -o v.csv", "asm first.s -o p.bin",
                 "run first.s --dump-state STATE.json"):
        subprocess.run([program, *line.split()], cwd=directory, check=True, stdout=subprocess.DEVNULL)
    # Results that are wrong in some places.
    for good, bad in (("C.npy", "DUT.npy"), ("Q.safetensors", "DUT.safetensors")):
        bytes_ = bytearray((directory / good).read_bytes())
        for i in range(3, 500, 70):
            bytes_[-i] ^= 1
        (directory / bad).write_bytes(bytes_)


def subcommands(program, *parents):
    """All commands; in place of those that have commands of their own, these: gen bundle."""
    text = subprocess.run([program, *parents, "--help"], check=True, capture_output=True, text=True).stdout
    if "Subcommands:" not in text:
        return [" ".join(parents)]
    block = text.split("Subcommands:")[1].split("Examples:")[0]
    return [name for word in re.findall(r"^  (\S+)", block, re.M) for name in subcommands(program, *parents, word)]


TIMES = re.compile(rb'\d+\.\d+ s\b|"seconds": [\d.e-]+|TMP\S*')


class Runner:
    def __init__(self, program, library, inputs, scratch):
        self.program, self.library, self.inputs, self.scratch = program, library, inputs, scratch
        self.before = self.snapshot(inputs)

    @staticmethod
    def snapshot(directory):
        return {str(p.relative_to(directory)): p.read_bytes() if p.is_file() else None
                for p in sorted(directory.rglob("*"))}

    def run(self, case, out, fault=None):
        """Exit code, standard output, standard error, calls, faults."""
        environment = dict(os.environ)
        log = Path(f"{out}.log")
        if case.named:
            environment["FAULT_NAMED"] = "1"
        if fault:
            environment.update(LD_PRELOAD=self.library, FAULT=fault, FAULT_LOG=str(log))
        arguments = [a.replace("OUT", str(out)) for a in case.line.split()]
        stdin = open(self.inputs / case.stdin, "rb") if case.stdin else None
        # Through a pipe: standard input that is a file would be read like one.
        try:
            done = subprocess.run([self.program, *arguments], cwd=self.inputs, env=environment, capture_output=True,
                                  timeout=60, **({"input": stdin.read()} if stdin else {"stdin": subprocess.DEVNULL}))
        finally:
            if stdin:
                stdin.close()
        calls = fired = None
        if log.exists():
            calls, fired = map(int, log.read_text().split())
            log.unlink()
        stdout = TIMES.sub(b"TIME", done.stdout.replace(str(out).encode(), b"OUT"))
        return done.returncode, stdout, done.stderr, calls, fired


class Tried:
    """All runs of a case, with one state of the outputs before."""

    def __init__(self, runner, case, replaces):
        self.runner, self.case, self.replaces = runner, case, replaces
        self.faults = []
        with tempfile.TemporaryDirectory(dir=runner.scratch) as parent:
            out = Path(parent) / "out"
            self.prepare(out)
            code, self.stdout, stderr, _, _ = runner.run(case, out)
            assert code == case.code, (case.line, code, stderr)
            self.new = runner.snapshot(out)
            for name in case.outputs:
                assert self.new[name] != self.old(name), name
            self.files = [name for name, bytes_ in self.new.items() if bytes_ is not None]

    def old(self, name):
        return b"old bytes of " + name.encode() if self.replaces else None

    def prepare(self, out):
        out.mkdir()
        if not self.replaces:
            return
        for name in self.case.outputs:
            (out / name).parent.mkdir(exist_ok=True)
            (out / name).write_bytes(self.old(name))

    def count(self, kind):
        with tempfile.TemporaryDirectory(dir=self.runner.scratch) as parent:
            out = Path(parent) / "out"
            self.prepare(out)
            calls = self.runner.run(self.case, out, f"{kind.split(':')[0]}:1000000000")[3]
            assert calls is not None, (self.case.line, kind, "was not counted")
            return calls

    def check(self, kind, number):
        """What is wrong after one run with a fault."""
        fault = kind.replace(":on", "") + f":{number}" + (":on" if kind.endswith(":on") else "")
        with tempfile.TemporaryDirectory(dir=self.runner.scratch) as parent:
            out = Path(parent) / "out"
            self.prepare(out)
            before = self.runner.snapshot(out)
            code, stdout, stderr, _, fired = self.runner.run(self.case, out, fault)
            after = self.runner.snapshot(out)
            wrong = []
            killed = kind == "kill" and code == -signal.SIGKILL
            stopped = kind == "signal" and code == -signal.SIGTERM
            for name in self.files:
                now = after.get(name)
                if now != self.new[name] and now != before.get(name):
                    wrong.append(f"{name} has {None if now is None else len(now)} wrong bytes")
            if code < 0 and not killed and not stopped:
                wrong.append(f"ended by signal {-code}")
            extra = sorted(set(after) - set(before) - set(self.files))
            if code == self.case.code:
                for name in self.files:
                    if after.get(name) != self.new[name]:
                        wrong.append(f"exit code {code}, but {name} is not the new file")
                if stdout != self.stdout:
                    wrong.append(f"exit code {code}, but standard output is not complete")
                extra = [name for name in extra if name not in self.new]
            elif not killed:
                if code != 2 and not stopped:
                    wrong.append(f"exit code {code}")
                if b"error" not in stderr:
                    wrong.append("no message")
                if kind in ("interrupt", "short"):
                    wrong.append("failed, though nothing was lost")
                # Where not even the end has memory, a checkpoint is left as by a kill.
                kept = b"the next run goes on from there" in stderr or stderr == b"bitcube: error: not enough memory\n"
                whole = all(after.get(name) == self.new[name] for name in self.files)
                extra = [name for name in extra
                         if not (kept and (".partial" in name or name == "shards")) and not (whole and name in self.new)]
            if killed:
                # Between link and rename a file that replaces another has a name of its own.
                has_name = self.replaces or self.case.named
                extra = [name for name in extra if ".partial" not in name and name != "shards" and
                         not (has_name and re.fullmatch(r"(.*/)?\.bitcube-[0-9a-f]{16}\.tmp", name))]
            if extra:
                wrong.append(f"left behind: {extra}")
            if killed and not wrong:
                code, _, stderr, _, _ = self.runner.run(self.case, out)
                again = self.runner.snapshot(out)
                if code != self.case.code or any(again.get(n) != self.new[n] for n in self.files):
                    wrong.append(f"run again after the kill: exit code {code}, {stderr}")
            if wrong:
                state = "replaced" if self.replaces else "new"
                return [f"{self.case.line} ({state} outputs), {fault}: {w}\n    {stderr.decode(errors='replace').strip()}"
                        for w in wrong]
            return []


def spread(count, limit):
    if limit is None or count <= limit:
        return list(range(1, count + 1))
    return sorted({1 + round(i * (count - 1) / max(limit - 1, 1)) for i in range(limit)})


def spread_late(count, limit, dense):
    """Half of them among the last: of some thousand allocations most set up the command line. Dense: all of the last."""
    last = min(count, 400)
    if limit is None or count <= last:
        return spread(count, limit)

    def middles(first, length, parts):
        return {first + (2 * i + 1) * length // (2 * parts) for i in range(parts)}

    late = set(range(count - last + 1, count + 1)) if dense else middles(count - last + 1, last, limit // 2)
    return sorted(middles(1, count - last, limit - limit // 2) | late)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("library", type=os.path.abspath)
    parser.add_argument("source", type=lambda p: Path(p).absolute())
    parser.add_argument("--long", action="store_true", help="every call of every kind")
    parser.add_argument("--limit", type=int, default=4, help="calls of a kind per case without --long")
    parser.add_argument("--only", help="this command only")
    options = parser.parse_args()

    commands = subcommands(options.program)
    missing = set(commands) - {case.command(commands) for case in CASES}
    if missing or not commands:
        sys.exit(f"no case for {', '.join(sorted(missing))}: add one to CASES in {__file__}")

    table = {}
    wrong = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        inputs = scratch / "inputs"
        inputs.mkdir()
        make_inputs(inputs, options.program, options.source)
        runner = Runner(options.program, options.library, inputs, scratch)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() + 1) as pool:
            waiting = []
            for case in CASES:
                if options.only and case.command(commands) != options.only:
                    continue
                table.setdefault(case.command(commands), dict.fromkeys(KINDS, 0))
                for replaces in ([False, True] if case.outputs else [False]):
                    waiting.append(pool.submit(lambda c=case, r=replaces: Tried(runner, c, r)))
            jobs = []
            counts = []
            for future in waiting:
                tried = future.result()
                limit = None if options.long and not tried.case.few else options.limit
                for kind in KINDS:
                    counts.append((tried, kind, limit, pool.submit(tried.count, kind)))
            for tried, kind, limit, count in counts:
                # The end of a process is the fault that most files can suffer from: each place of it.
                some = limit if kind != "kill" or tried.case.few or not tried.case.outputs or limit is None else 4 * limit
                if kind.startswith("memory"):
                    numbers = spread_late(count.result(), some, tried.case.dense and kind == "memory:on")
                else:
                    numbers = spread(count.result(), some)
                for number in numbers:
                    table[tried.case.command(commands)][kind] += 1
                    jobs.append(pool.submit(tried.check, kind, number))
            for job in jobs:
                wrong += job.result()
        if runner.snapshot(inputs) != runner.before:
            wrong.append("an input was changed")

    print(f"{'command':20}" + "".join(f"{kind:>11}" for kind in KINDS))
    for command, row in table.items():
        print(f"{command:20}" + "".join(f"{row[kind]:11}" for kind in KINDS))
    total = sum(sum(row.values()) for row in table.values())
    print(f"{total} faults, {len(wrong)} with consequences that must not be")
    for text in wrong[:40]:
        print(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
