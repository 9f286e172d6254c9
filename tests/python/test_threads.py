"""Long calls let other Python threads go on, and threads do not disturb each other."""

import threading
import time

import numpy as np
import pytest

import bitcube
from conftest import same

RNG = np.random.default_rng(1)
X = RNG.standard_normal((2000, 2000))
TENSOR = bitcube.quantize(X, "nvfp4")
M = RNG.standard_normal((600, 1200)).astype(np.float32)
LANES = RNG.integers(0, 16, 4_000_000, dtype=np.uint8)
ACC = (X * 100).astype(np.int32)
PRODUCT = """BSTART.TMATMUL FP16
B.FPATR NoQuant, 0, 0, 0, 0, 0, 0, 0, 0, 0
B.DIM zero, 2, ->LB0
B.DIM zero, 2, ->LB1
B.DIM zero, 2, ->LB2
B.IOT T#1, T#2, mask=1000, <last>, ->U<1>
BSTOP
"""
PROGRAM = bitcube.Program(PRODUCT * 10000)


def new_machine():
    machine = bitcube.Machine()
    machine.set_tile(0, "T#1", np.ones((2, 2), np.float16), "CUBE_M16")
    machine.set_tile(0, "T#2", np.ones((2, 2), np.float16), "CUBE_N8")
    return machine


LONG = {
    "convert": lambda: bitcube.convert(X, "e4m3", threads=1),
    "convert lanes": lambda: bitcube.convert(LANES, "bf16", from_="e2m1", threads=1),
    "quantize": lambda: bitcube.quantize(X, "nvfp4", rounding="rtz", threads=1),
    "dequantize": lambda: TENSOR.dequantize(np.float64, threads=1),
    "error": lambda: TENSOR.error(X, threads=1),
    "matmul": lambda: bitcube.matmul(M, M.T, accumulate="exact", threads=1),
    "postprocess": lambda: bitcube.postprocess(ACC, relu_param=0.5, threads=1),
    "run": lambda: new_machine().run(PROGRAM),
}


@pytest.mark.parametrize("what", LONG)
def test_other_threads_go_on(what):
    """While the call lasts, which is tens of milliseconds, another thread counts. With the GIL held, it could count
    only before and after: no try would have counts in the middle."""
    call = LONG[what]
    call()
    best = 0.0
    give_up = time.monotonic() + 20
    while time.monotonic() < give_up:
        ticks = []
        done = threading.Event()
        ready = threading.Event()

        def tick():
            ready.set()
            while not done.is_set():
                ticks.append(time.perf_counter())
                time.sleep(0)

        thread = threading.Thread(target=tick)
        thread.start()
        ready.wait()
        begin = time.perf_counter()
        call()
        end = time.perf_counter()
        done.set()
        thread.join()
        # The largest part of the call in which nothing was counted.
        inside = [begin, *(t for t in ticks if begin < t < end), end]
        gap = max(b - a for a, b in zip(inside, inside[1:]))
        best = max(best, 1 - gap / (end - begin))
        if best > 0.5:
            return
    pytest.fail(f"nothing ran during {1 - best:.0%} of the call")


def test_many_threads_get_what_one_gets():
    want = [call() for call in LONG.values() if call is not LONG["quantize"]]
    wrong = []

    def work(index):
        got = [call() for call in LONG.values() if call is not LONG["quantize"]]
        for a, b in zip(got, want):
            try:
                a, b = (a[0], b[0]) if isinstance(a, tuple) and not isinstance(a, bitcube.ErrorReport) else (a, b)
                if isinstance(a, np.ndarray):
                    same(a, b)
                else:
                    assert a == b
            except AssertionError as problem:
                wrong.append((index, problem))

    threads = [threading.Thread(target=work, args=(i, )) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_take_turns_on_one_machine():
    machine, want = new_machine(), new_machine()
    program = bitcube.Program(PRODUCT * 20)
    seen = []

    def work():
        for _ in range(25):
            machine.run(program)
            seen.append(machine.tile(0, "U#1").data.tolist())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(100):
        want.run(program)
    assert machine == want and seen == [[[2, 2], [2, 2]]] * 100
