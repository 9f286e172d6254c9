# Compares the block formats on a real network: errors of its weights, and what they cost in recognised digits.
# Run it as a program, or cell by cell in an editor that knows `# %%`. With an argument it saves a plot there:
#
#   PYTHONPATH=build/python /usr/bin/python3 examples/python/compare_formats.py formats.png

# %% The weights and the digits of examples/mnist-mlp
import sys
from pathlib import Path

import numpy as np

import bitcube

folder = Path(__file__).resolve().parent.parent / "mnist-mlp"
weights = [np.load(folder / f"w{i}.npy") for i in range(3)]
biases = [np.load(folder / f"b{i}.npy") for i in range(3)]
images = np.load(folder / "images.npy") / np.float32(255)
labels = np.load(folder / "labels.npy")

# %% Every format on the first layer's weights, whose groups lie along K
formats = [f.name for f in bitcube.block_formats()]
tensors = {name: bitcube.quantize(weights[0], name, axis=0) for name in formats}
bits = {name: 8 * t.nbytes / weights[0].size for name, t in tensors.items()}
sqnr = {name: t.error(weights[0]).sqnr for name, t in tensors.items()}

print(f"weights {weights[0].shape[0]} x {weights[0].shape[1]}")
print(f"{'format':11} {'bits':>5}  {'SQNR':>8}  {'max relative error':>18}")
for name in sorted(formats, key=lambda n: (bits[n], -sqnr[n])):
    worst = tensors[name].error(weights[0]).max_relative_error
    print(f"{name:11} {bits[name]:5.2f}  {sqnr[name]:5.2f} dB  {worst:18.4g}")


# %% The whole network, quantised and multiplied bit-exactly
def recognise(format, accumulate="fma"):
    """The share of the digits that the network gets right with its weights and activations in a format."""
    x = images
    for i, (w, b) in enumerate(zip(weights, biases)):
        if format != "fp32":
            x = bitcube.quantize(x, format, axis=1, source_type="bf16")
            w = bitcube.quantize(w, format, axis=0)
        x = bitcube.matmul(x, w, b, accumulate=accumulate, relu=i < 2).d
    return np.mean(x.argmax(axis=1) == labels)


print(f"\n{len(labels)} digits")
for name in ["fp32"] + formats:
    try:
        print(f"{name:11} {recognise(name):6.1%}")
    except ValueError as refused:  # the CUBE does not multiply all of them
        print(f"{name:11}      - {refused}")

# %% The scale rules of MX, where they differ most
print("\nmxfp4 by scale rule")
for rule in bitcube.choices()["scale"]:
    print(f"{rule:11} {bitcube.quantize(weights[0], 'mxfp4', axis=0, scale=rule).error(weights[0]).sqnr:5.2f} dB")

# %% The distribution of what is lost, as a plot
if len(sys.argv) > 1:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    order = sorted(formats, key=sqnr.get)
    bars = left.barh(order, [sqnr[name] for name in order])
    left.bar_label(bars, [f"{bits[name]:.2f} bits" for name in order], padding=3)
    left.set(xlabel="SQNR, dB", xlim=(0, 38), title="First layer's weights")
    for name in ("hif4", "mxfp4", "nvfp4"):
        error = (tensors[name].dequantize() - weights[0]).ravel() / weights[0].std()
        right.hist(error, bins=np.linspace(-0.5, 0.5, 101), histtype="step", label=name)
    right.set(xlabel="error, in standard deviations of the weights", ylabel="weights", title="4-bit formats")
    right.legend()
    figure.savefig(sys.argv[1])
    print(f"\nplot in {sys.argv[1]}")
