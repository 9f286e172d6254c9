"""Ctrl-C ends a long call."""

import signal
import threading
import time

import numpy as np
import pytest

import bitcube

X = np.zeros((4000, 4000))
A = np.zeros((3000, 4000), np.float32)
B = np.zeros((4000, 3000), np.float32)
LANES = np.zeros(8_000_000, np.uint8)
TENSOR = bitcube.quantize(X[:, :64], "nvfp4")

CODES, _ = bitcube.convert(np.arange(4_000_000, dtype=np.float32) / 4096, "e4m3")
WRONG = CODES ^ (np.arange(CODES.size) % 3 == 0).astype(np.uint8)

LONG = {
    "convert": lambda threads: bitcube.convert(X, "e4m3", threads=threads),
    "convert lanes": lambda threads: bitcube.convert(LANES, "bf16", from_="e2m1", threads=threads),
    "quantize": lambda threads: bitcube.quantize(X, "nvfp4", rounding="rtz", threads=threads),
    "matmul": lambda threads: bitcube.matmul(A, B, accumulate="exact", threads=threads),
    "diff": lambda threads: bitcube.diff(CODES, WRONG, format="e4m3", threads=threads),
    "explain": lambda threads: bitcube.explain(X, format="nvfp4", at=(0, 0), tensor_scale=True, source_type="fp16"),
}


@pytest.mark.parametrize("threads", [1, 0])
@pytest.mark.parametrize("name", LONG)
def test_keyboard_interrupt(name, threads):
    sent = []

    def send():
        time.sleep(0.15)
        sent.append(time.monotonic())
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        while True:  # a call that is faster than the signal is made again
            LONG[name](threads)
    took = time.monotonic() - sent[0]
    thread.join()
    # What NumPy does between two calls cannot be interrupted, and a busy machine takes its time.
    assert took < 10
    assert TENSOR.dequantize(np.float32).shape == (4000, 64)  # as if nothing had been
