"""The same random calls through C++, C, Python and the command line; every byte and every flag must be the same.

four_ways.py --library libbitcube.so --program bitcube --cpp four_ways [--seed N] [--calls N] [--only NUMBER]

A call depends on the seed and its number alone, so --only repeats one of a thousand. With --plant RTP the C calls take
that rounding instead, to see the comparison fail.
"""

import argparse
import collections
import concurrent.futures
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from ctypes import c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

import numpy as np

import bitcube

FLAGS = {"NV": 1, "DZ": 2, "OF": 4, "UF": 8, "NX": 16}
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
NATIVE = {"FP64": "f8", "FP32": "f4", "FP16": "f2", "S64": "i8", "S32": "i4", "S16": "i2", "S8": "i1", "U64": "u8",
          "U32": "u4", "U16": "u2", "U8": "u1"}
ROUNDINGS = ("RNE", "RTZ", "RTM", "RTP", "RNA", "RTO", "RHB")
PROFILES = ("pto", "asl", "ocp")
Call = collections.namedtuple("Call", "number kind options arrays")  # options: names and numbers; arrays: NumPy's


class Refused(Exception):
    """One of the four does not take a call. The calls are legal, so this is a difference."""


# ---- The C interface ----


def struct(name, fields):
    """A struct of bitcube.h from `type: member, member; ...`."""
    types = {"i": c_int32, "u": c_uint32, "u64": c_uint64, "size": c_size_t, "p": c_void_p, "text": c_char_p}
    members = []
    for part in fields.split(";"):
        type_, _, names = part.partition(":")
        members += [(n.strip(), types[type_.strip()]) for n in names.split(",")]
    return type(name, (ctypes.Structure, ), {"_fields_": members})


Format = struct("Format", "text: name, alias; i: type, kind, carrier_bits, lane_bits, value_bits, lanes_per_carrier, "
                "low_zero_bits, sign_bits, exponent_bits, fraction_bits, bias, has_zero, has_signed_zero, has_nan, "
                "has_infinity; u64: canonical_nan, infinity, max_finite")
PreQuant = struct("PreQuant", "text: name; i: code, accumulator, destination, carrier, per_column, offset_bits, "
                  "rounding, rounding_is_fixed, saturation_allowed")
Control = struct("Control", "i: rounding, saturate, profile; u: threads; i: reference; u: r0, r1, r2")
QuantizeOptions = struct("QuantizeOptions", "i: format, hif4_profile, scale_rule, rounding, tensor_scale; u: threads; "
                         "i: reference; u: r0, r1, r2")
TensorInfo = struct("TensorInfo", "i: format, hif4_profile, scale_rule, rounding, source, has_tensor_scale; "
                    "u: tensor_scale, reserved; size: rank, axis, code_bytes, scale_bytes")
Operand = struct("Operand", "p: tensor; i: type; u: reserved; size: rows, cols; p: words; size: word_bytes; p: scales; "
                 "size: scale_bytes")
ProductKind = struct("ProductKind", "i: accumulator, mx; size: rows, cols, k, group")
MatmulOptions = struct("MatmulOptions", "i: accumulation; u: threads; i: reference; u: reserved; p: c; size: c_words; "
                       "p: bias; size: bias_words, group")
PostOptions = struct("PostOptions", "i: mode, relu, rounding, saturate, profile, row_max, max_abs; "
                     "u: group_n, threads; i: reference; u: r0, r1; p: carriers; size: carrier_count; p: alphas; "
                     "size: alpha_count; p: row_max_init; size: row_max_init_words")
PostSizes = struct("PostSizes", "i: type; u: element_bytes; size: d_bytes, row_max_words, group_max_words")
PostOutput = struct("PostOutput", "p: d; size: d_bytes; p: row_max; size: row_max_words; p: group_max; "
                    "size: group_max_words")
TYPES, ROUNDING, PROFILE, BLOCKS, HIF4, SCALES, MODES, ACCUMULATE = range(8)


def address(array):
    """Of the words of an array; None, NULL, where there is none or nothing in it."""
    return array.ctypes.data if array is not None and array.size else None


def size_of(array):
    return 0 if array is None else array.size


class CInterface:
    """libbitcube.so, and the calls through it."""

    def __init__(self, path, planted):
        self.library = ctypes.CDLL(path)
        self.planted = planted
        self.library.bitcube_last_error.restype = c_char_p
        self.library.bitcube_name.restype = c_char_p
        for name in ("codes", "scales"):
            getattr(self.library, f"bitcube_tensor_{name}").restype = c_void_p

    def call(self, name, *arguments):
        if getattr(self.library, "bitcube_" + name)(*arguments) != 0:
            raise Refused(self.library.bitcube_last_error().decode())

    def code(self, table, name):
        out = c_int32()
        self.call("find", c_int32(table), name.encode(), ctypes.byref(out))
        return out.value

    def rounding(self, options, key="rounding"):
        if self.planted and key == "rounding":
            return self.code(ROUNDING, self.planted)
        return self.code(ROUNDING, options[key]) if key in options else 0

    def format(self, name):
        out = Format()
        self.call("format_of", c_int32(self.code(TYPES, name)), ctypes.byref(out))
        return out

    def prequant(self, name):
        out = PreQuant()
        self.call("prequant_of", c_int32(self.code(MODES, name)), ctypes.byref(out))
        return out

    def converts(self, from_, to):
        code = c_uint64()
        status = self.library.bitcube_convert(c_int32(from_), c_int32(to), c_uint64(0), None, ctypes.byref(code), None)
        return status == 0

    def type_name(self, code):
        return self.library.bitcube_name(c_int32(TYPES), c_int32(code)).decode()

    def product_of(self, a, b, scales):
        """The accumulator of a product of words of two types, with scales or without, or None."""
        word = np.zeros(8, np.uint8)
        sides = []
        for name in (a, b):
            f = self.format(name)
            has = scales and name not in ("FP16", "BF16")
            sides.append(Operand(type=f.type, rows=1, cols=1, words=address(word), word_bytes=f.carrier_bits // 8,
                                 scales=address(word) if has else None,
                                 scale_bytes=(4 if name == "HiF4X2" else 1) if has else 0))
        kind = ProductKind()
        if self.library.bitcube_product_of(*map(ctypes.byref, sides), ctypes.byref(kind)) != 0:
            return None
        return self.type_name(kind.accumulator)

    def convert(self, o, arrays):
        source, to = self.format(o["from"]), self.format(o["to"])
        x = arrays["x"]
        control = Control(rounding=self.rounding(o), saturate=o["saturate"], profile=self.code(PROFILE, o["profile"]),
                          threads=o["threads"], reference=o["reference"])
        out = np.zeros(x.size, UNSIGNED[to.carrier_bits])
        flags = c_uint32()
        if source.lanes_per_carrier == to.lanes_per_carrier == 1:
            self.call("convert_array", c_int32(source.type), c_int32(to.type), c_void_p(address(x)), c_size_t(x.size),
                      ctypes.byref(control), c_void_p(address(out)), c_size_t(out.nbytes), ctypes.byref(flags))
            return {"words": out.tobytes(), "flags": flags.value}
        every = 0
        code = c_uint64()
        for i, word in enumerate(x.ravel().tolist()):
            self.call("convert", c_int32(source.type), c_int32(to.type), c_uint64(word), ctypes.byref(control),
                      ctypes.byref(code), ctypes.byref(flags))
            out[i] = code.value
            every |= flags.value
        return {"words": out.tobytes(), "flags": every}

    def tensor(self, o, arrays, prefix=""):
        x = arrays[prefix + "x"]
        options = QuantizeOptions(format=self.code(BLOCKS, o[prefix + "format"]),
                                  hif4_profile=self.code(HIF4, o.get(prefix + "hif4", "pto")),
                                  scale_rule=self.code(SCALES, o.get(prefix + "scale", "floor")),
                                  rounding=self.rounding(o, prefix + "rounding"),
                                  tensor_scale=o.get(prefix + "tensor_scale", 0), threads=o["threads"],
                                  reference=o["reference"])
        out = c_void_p()
        self.call("quantize", c_int32(self.code(TYPES, o[prefix + "source"])), c_void_p(address(x)), c_size_t(x.nbytes),
                  (c_uint64 * x.ndim)(*x.shape), c_size_t(x.ndim), c_size_t(o[prefix + "axis"]), ctypes.byref(options),
                  ctypes.byref(out))
        return out

    def quantize(self, o, arrays):
        tensor = self.tensor(o, arrays)
        info, flags = TensorInfo(), c_uint32()
        self.call("tensor_describe", tensor, ctypes.byref(info))
        out = {"codes": ctypes.string_at(self.library.bitcube_tensor_codes(tensor), info.code_bytes),
               "scales": ctypes.string_at(self.library.bitcube_tensor_scales(tensor), info.scale_bytes)}
        if info.has_tensor_scale:
            out["tensor_scale"] = info.tensor_scale.to_bytes(4, "little")
        to = self.format(o["destination"])
        values = np.zeros(arrays["x"].size, UNSIGNED[to.carrier_bits])
        control = Control(rounding=self.rounding(o, "back"), threads=o["threads"], reference=o["reference"])
        self.call("dequantize", tensor, c_int32(to.type), ctypes.byref(control), c_void_p(address(values)),
                  c_size_t(values.nbytes), ctypes.byref(flags))
        self.library.bitcube_tensor_free(tensor)
        return {**out, "values": values.tobytes(), "flags": flags.value}

    def matmul(self, o, arrays):
        sides, tensors = [], []
        for prefix in ("a_", "b_"):
            if prefix + "format" in o:
                tensors.append(self.tensor(o, arrays, prefix))
                sides.append(Operand(tensor=tensors[-1].value))
                continue
            x, scales = arrays[prefix + "x"], arrays.get(prefix + "scales")
            sides.append(Operand(type=self.code(TYPES, o[prefix + "type"]), rows=x.shape[0], cols=x.shape[1],
                                 words=address(x), word_bytes=x.nbytes, scales=address(scales),
                                 scale_bytes=0 if scales is None else scales.nbytes))
        c, bias = arrays.get("c"), arrays.get("bias")
        options = MatmulOptions(accumulation=self.code(ACCUMULATE, o["accumulate"]), threads=o["threads"],
                                reference=o["reference"], c=address(c), c_words=size_of(c), bias=address(bias),
                                bias_words=size_of(bias))
        words = np.zeros((arrays["a_x"].shape[0], arrays["b_x"].shape[1]), np.uint32)
        self.call("matmul", *map(ctypes.byref, sides), ctypes.byref(options), c_void_p(address(words)),
                  c_size_t(words.size))
        for tensor in tensors:
            self.library.bitcube_tensor_free(tensor)
        return self.post(o, arrays, words)

    def postprocess(self, o, arrays):
        return self.post(o, arrays, arrays["x"])

    def post(self, o, arrays, words):
        carriers, alphas, init = (arrays.get(name) for name in ("carriers", "alphas", "row_max_init"))
        fixed = self.prequant(o["mode"]).rounding_is_fixed
        options = PostOptions(mode=self.code(MODES, o["mode"]), relu=o["relu"],
                              rounding=0 if fixed else self.rounding(o), saturate=o["saturate"],
                              profile=self.code(PROFILE, o["profile"]), row_max=o["row_max"], max_abs=o["max_abs"],
                              group_n=o["group_n"], threads=o["threads"], reference=o["reference"],
                              carriers=address(carriers), carrier_count=size_of(carriers), alphas=address(alphas),
                              alpha_count=size_of(alphas), row_max_init=address(init),
                              row_max_init_words=size_of(init))
        accumulator = c_int32(self.code(TYPES, o["accumulator"]))
        rows, cols = map(c_size_t, words.shape)
        sizes, flags = PostSizes(), c_uint32()
        self.call("postprocess_check", accumulator, rows, cols, ctypes.byref(options), ctypes.byref(sizes))
        d = np.zeros(sizes.d_bytes, np.uint8)
        row_max, group_max = np.zeros(sizes.row_max_words, np.uint32), np.zeros(sizes.group_max_words, np.uint32)
        output = PostOutput(address(d), d.size, address(row_max), row_max.size, address(group_max), group_max.size)
        self.call("postprocess", accumulator, c_void_p(address(words)), rows, cols, ctypes.byref(options),
                  ctypes.byref(output), ctypes.byref(flags))
        if o["packed"]:
            lanes, d = d, np.zeros(words.shape[0] * -(-words.shape[1] // 2), np.uint8)
            self.call("pack_rows", c_void_p(address(lanes)), rows, cols, c_void_p(address(d)), c_size_t(d.size))
        out = {"d": d.tobytes(), "flags": flags.value}
        if o["row_max"]:
            out["row_max"] = row_max.tobytes()
        if o["group_n"]:
            out["group_max"] = group_max.tobytes()
        return out


# ---- Python and the command line ----


def typed(array, type_):
    """Words as an array of the type's own dtype, where NumPy has one, and otherwise as codes with the type's name."""
    return (array.view(NATIVE[type_]), None) if type_ in NATIVE else (array, type_)


def given(options, **names):
    """The options that a call has, under other names."""
    return {theirs: options[ours] for theirs, ours in names.items() if ours in options}


class Python:
    """The package."""

    def convert(self, o, arrays):
        x, from_ = typed(arrays["x"], o["from"]) if o["native"] else (arrays["x"], o["from"])
        words, flags = bitcube.convert(x, o["to"], saturate=bool(o["saturate"]), profile=o["profile"], from_=from_,
                                       threads=o["threads"], **given(o, rounding="rounding"))
        return {"words": words.tobytes(), "flags": int(flags)}

    def tensor(self, o, arrays, prefix=""):
        x, from_ = typed(arrays[prefix + "x"], o[prefix + "source"])
        return bitcube.quantize(x, o[prefix + "format"], o[prefix + "axis"], from_=from_, threads=o["threads"],
                                tensor_scale=prefix + "tensor_scale" in o,
                                **given(o, profile=prefix + "hif4", scale=prefix + "scale",
                                        rounding=prefix + "rounding"))

    def quantize(self, o, arrays):
        tensor = self.tensor(o, arrays)
        values, flags = tensor.dequantize_with_flags(o["destination"].lower(), threads=o["threads"],
                                                     **given(o, rounding="back"))
        out = {"codes": tensor.codes.tobytes(), "scales": tensor.scales.tobytes()}
        if tensor.tensor_scale is not None:
            out["tensor_scale"] = np.float32(tensor.tensor_scale).tobytes()
        return {**out, "values": values.tobytes(), "flags": int(flags)}

    def post(self, o, arrays):
        """The arguments of a post-process."""
        carriers, alphas, init = (arrays.get(name) for name in ("carriers", "alphas", "row_max_init"))
        out = {"saturate": bool(o["saturate"]), "profile": o["profile"], "row_max": bool(o["row_max"]),
               "max_abs": bool(o["max_abs"]), "packed": bool(o["packed"]), "relu": o["relu"] == 1,
               "threads": o["threads"], **given(o, rounding="rounding")}
        if carriers is not None:
            out["quant_params"] = carriers if o["mode"].startswith("V") else int(carriers[0])
        if o["relu"] == 2:
            out["relu_param"] = float((alphas.astype(np.uint32) << 13).view(np.float32)[0])
        elif o["relu"] == 3:
            out["relu_param"] = alphas
        if init is not None:
            out["row_max_init"] = init.view(NATIVE[o["accumulator"]])
        if o["group_n"]:
            out["group_max"] = o["group_n"]
        return out

    def result(self, result):
        parts = {"d": result.d, "row_max": result.row_max, "group_max": result.group_max}
        return {**{k: v.tobytes() for k, v in parts.items() if v is not None}, "flags": int(result.flags)}

    def matmul(self, o, arrays):
        sides, options = [], {}
        for prefix in ("a_", "b_"):
            if prefix + "format" in o:
                sides.append(self.tensor(o, arrays, prefix))
                continue
            x, options[prefix + "type"] = typed(arrays[prefix + "x"], o[prefix + "type"])
            sides.append(x)
            options[prefix + "scales"] = arrays.get(prefix + "scales")
        for name in ("c", "bias"):
            if name in arrays:
                options[name] = arrays[name].view(NATIVE[o["accumulator"]])
        return self.result(bitcube.matmul(*sides, accumulate=o["accumulate"], pre_quant=o["mode"], **options,
                                          **self.post(o, arrays)))

    def postprocess(self, o, arrays):
        acc = arrays["x"].view(NATIVE[o["accumulator"]])
        return self.result(bitcube.postprocess(acc, o["mode"], **self.post(o, arrays)))


class CommandLine:
    """The program, in a directory where every call has files of its own."""

    def __init__(self, program, directory):
        self.program = program
        self.directory = directory

    def call(self, call):
        return Run(self, call.number).result(call)


class Run:
    """One call of the command line."""

    def __init__(self, line, number):
        self.line = line
        self.number = number

    def result(self, call):
        return getattr(self, call.kind)(call.options, call.arrays)

    def run(self, *arguments):
        done = subprocess.run([self.line.program, *map(str, arguments), "--json"], cwd=self.line.directory,
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Refused(f"exit code {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def name(self, name):
        return f"{self.number}_{name}"

    def save(self, name, array):
        np.save(self.line.directory / self.name(name), array)
        return self.name(name)

    def load(self, name):
        return np.load(self.line.directory / self.name(name)).tobytes()

    def flags(self, report):
        return sum(FLAGS[f] for f in report["flags"])

    def options(self, o, **names):
        """--OPTION VALUE for every option that a call has."""
        return [word for option, key in names.items() if key in o for word in (f"--{option}", o[key])]

    def convert(self, o, arrays):
        x, from_ = typed(arrays["x"], o["from"]) if o["native"] else (arrays["x"], o["from"])
        report = self.run("convert", self.save("x.npy", x), "-o", self.name("y.npy"),
                          *(["--from", from_] if from_ else []), *(["--sat"] if o["saturate"] else []),
                          *self.options(o, to="to", round="rounding", profile="profile", threads="threads"))
        return {"words": self.load("y.npy"), "flags": self.flags(report)}

    def tensor(self, o, arrays, prefix=""):
        """The name of the file of a tensor, and what is in it."""
        x, from_ = typed(arrays[prefix + "x"], o[prefix + "source"])
        file = self.name(prefix + "t.safetensors")
        self.run("quantize", self.save(prefix + "x.npy", x), "-o", file, "--name", "t",
                 *(["--source-type", from_] if from_ else []),
                 *(["--tensor-scale"] if prefix + "tensor_scale" in o else []),
                 *self.options(o, format=prefix + "format", axis=prefix + "axis", profile=prefix + "hif4",
                               scale=prefix + "scale", round=prefix + "rounding", threads="threads"))
        return file

    def quantize(self, o, arrays):
        file = self.tensor(o, arrays)
        content = (self.line.directory / file).read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        out = {}
        for part in ("codes", "scales"):
            begin, end = header["t." + part]["data_offsets"]
            out[part] = content[start + begin:start + end]
        described = json.loads(header["__metadata__"]["bitcube"])["tensors"]["t"]
        if "tensor_scale" in described:
            out["tensor_scale"] = int(described["tensor_scale"], 16).to_bytes(4, "little")
        report = self.run("dequantize", file, "-o", self.name("y.npy"),
                          *self.options(o, to="destination", round="back", threads="threads"))
        return {**out, "values": self.load("y.npy"), "flags": self.flags(report)}

    def post(self, o, arrays):
        """The arguments of a post-process, and the files of its results."""
        carriers, alphas, init = (arrays.get(name) for name in ("carriers", "alphas", "row_max_init"))
        out = ["-o", self.name("d.npy"), "--pre-quant", o["mode"],
               *self.options(o, round="rounding", profile="profile", threads="threads")]
        for option, wanted in (("--sat", o["saturate"]), ("--relu", o["relu"] == 1), ("--max-abs", o["max_abs"]),
                               ("--packed", o["packed"])):
            out += [option] if wanted else []
        if carriers is not None:
            per_column = o["mode"].startswith("V")
            out += ["--quant-params", self.save("q.npy", carriers)] if per_column else ["--scale", hex(carriers[0])]
        if o["relu"] >= 2:
            out += ["--relu-param", hex(alphas[0]) if o["relu"] == 2 else self.save("alphas.npy", alphas)]
        if init is not None:
            out += ["--row-max-init", self.save("init.npy", init.view(NATIVE[o["accumulator"]]))]
        if o["row_max"]:
            out += ["--row-max", self.name("row_max.npy")]
        if o["group_n"]:
            out += ["--group-max", f"{o['group_n']}:{self.name('group_max.npy')}"]
        return out

    def results(self, o, report):
        names = ["d"] + ["row_max"] * o["row_max"] + ["group_max"] * (o["group_n"] != 0)
        return {**{name: self.load(name + ".npy") for name in names}, "flags": self.flags(report)}

    def matmul(self, o, arrays):
        files, options = [], ["--accumulate", o["accumulate"]]
        for letter in "ab":
            if f"{letter}_format" in o:
                files.append(self.tensor(o, arrays, letter + "_"))
                continue
            x, type_ = typed(arrays[letter + "_x"], o[letter + "_type"])
            files.append(self.save(letter + ".npy", x))
            options += [f"--{letter}-type", type_] if type_ else []
            if letter + "_scales" in arrays:
                options += [f"--{letter}-scales", self.save(letter + "_scales.npy", arrays[letter + "_scales"])]
        for name in ("c", "bias"):
            if name in arrays:
                options += ["--" + name, self.save(name + ".npy", arrays[name].view(NATIVE[o["accumulator"]]))]
        return self.results(o, self.run("matmul", *files, *options, *self.post(o, arrays)))

    def postprocess(self, o, arrays):
        acc = self.save("acc.npy", arrays["x"].view(NATIVE[o["accumulator"]]))
        return self.results(o, self.run("postprocess", acc, *self.post(o, arrays)))


# ---- C++ ----


def run_cpp(program, directory, calls):
    """The results of all calls, by number."""
    offset = 0
    with open(directory / "data", "wb") as data, open(directory / "calls", "w", encoding="ascii") as list_:
        for call in calls:
            words = [f"{key}={value}" for key, value in call.options.items()]
            for name, array in call.arrays.items():
                words.append(f"{name}={offset}:{array.nbytes}")
                shape = name[:-1] + "shape"
                words += [f"{shape}={','.join(map(str, array.shape))}"] if name.endswith("x") else []
                offset += data.write(array.tobytes())
            print(call.number, call.kind, *words, file=list_)
    subprocess.run([program, directory / "calls", directory / "data", directory / "results"], check=True)
    content = (directory / "results").read_bytes()
    out = collections.defaultdict(dict)
    at = 0
    while at < len(content):
        end = content.index(b"\n", at)
        number, name, size = content[at:end].decode().split()
        at = end + 1 + int(size)
        value = content[end + 1:at]
        out[int(number)][name] = value[0] if name == "flags" else value
    return out


# ---- Random calls ----


class Generator:
    """Legal calls. The tables of the C interface say what is legal."""

    def __init__(self, c):
        self.c = c
        self.formats = {f.name: c.format(f.name) for f in bitcube.formats()}
        self.pairs = [(a, b) for a in self.formats for b in self.formats
                      if c.converts(self.formats[a].type, self.formats[b].type)]
        self.products = collections.defaultdict(list)  # by their accumulators; None: no product
        for scales in (False, True):
            for a in self.formats:
                for b in self.formats:
                    self.products[c.product_of(a, b, scales)].append((a, b, scales))
        self.modes = {name: c.prequant(name) for name in bitcube.choices()["mode"]}

    def call(self, seed, number):
        self.rng = np.random.default_rng((seed, number))
        kind = self.one(["convert"] * 4 + ["quantize"] * 2 + ["matmul"] * 2 + ["postprocess"] * 2)
        options = {"threads": self.one([0, 1, 2]), "reference": int(self.often(0.25))}
        arrays = {}
        getattr(self, kind)(options, arrays)
        return Call(number, kind, options, arrays)

    def one(self, things):
        return things[int(self.rng.integers(len(things)))]

    def often(self, probability):
        return bool(self.rng.random() < probability)

    def size(self, most):
        return int(self.rng.integers(1, most + 1))

    def words(self, type_, shape, finite=False):
        """Words of a type: of any bits, of ordinary size, and some of NaN, infinities, zeros and subnormals."""
        f = self.formats[type_]
        unsigned = UNSIGNED[f.carrier_bits]
        mask = (1 << f.lane_bits) - (1 << f.low_zero_bits)
        if (self.often(0.1) and not finite) or f.kind == 1:
            mask |= (1 << f.lane_bits) - 1  # also bits that should be 0
        words = self.rng.integers(0, 1 << 64, shape, np.uint64, endpoint=False)
        if type_ in ("FP64", "FP32", "FP16", "BF16", "TF32", "HF32"):
            ordinary = self.rng.standard_normal(shape) * 10.0**self.rng.integers(-6, 7)
            if type_ == "FP64":
                ordinary = ordinary.view(np.uint64)
            elif type_ == "FP16":
                ordinary = np.clip(ordinary, -65504, 65504).astype(np.float16).view(np.uint16)
            else:
                ordinary = ordinary.astype(np.float32).view(np.uint32) >> (16 if type_ == "BF16" else 0)
            share = 0 if finite else self.one([0, 0.5, 1])
            words = np.where(self.rng.random(shape) < share, words, ordinary.astype(np.uint64))
        elif f.kind >= 2:
            # Integers of every length, with copies of the sign above.
            words = (words.view(np.int64) >> self.rng.integers(0, 64, shape)).view(np.uint64)
        sign = 1 << (f.lane_bits - 1)
        special = [0, sign, 1, sign | 1, f.max_finite, f.max_finite | sign, (1 << f.fraction_bits) - 1]
        if finite and f.kind == 0:
            words &= np.uint64(~(1 << (f.lane_bits - 2)) & mask)  # the largest exponents, where NaN and infinities are
            words = np.where(words == np.uint64(f.canonical_nan), np.uint64(0), words) if f.has_nan else words
        else:
            special += [f.canonical_nan, f.canonical_nan | sign] if f.has_nan else []
            special += [f.infinity, f.infinity | sign, f.infinity | 1 << f.low_zero_bits] if f.has_infinity else []
        chosen = np.array(special, np.uint64)[self.rng.integers(0, len(special), shape)]
        words = np.where(self.rng.random(shape) < self.one([0, 0.02, 0.3]), chosen, words)
        return (words & np.uint64(mask)).astype(unsigned)

    def common(self, o, rounding=ROUNDINGS):
        if self.often(0.7):
            o["rounding"] = self.one(rounding)
        o["saturate"] = int(self.often(0.5))
        o["profile"] = self.one(PROFILES)

    def convert(self, o, arrays):
        o["from"], o["to"] = self.one(self.pairs)
        limited = {o["from"], o["to"]} & {"E6M2", "RCPE6M2"}
        self.common(o, ("RNE", "RNA") if limited else ROUNDINGS)
        o["native"] = int(self.often(0.5))
        arrays["x"] = self.words(o["from"], (self.size(400), ))

    def tensor(self, o, arrays, prefix, formats, source, shape, axis, finite=False):
        block = self.one(formats)
        o[prefix + "format"], o[prefix + "source"], o[prefix + "axis"] = block, source, axis
        if block == "hif4":
            o[prefix + "hif4"] = self.one(bitcube.choices()["hif4_profile"])
        elif self.often(0.7):
            o[prefix + "rounding"] = self.one(ROUNDINGS)
        if block.startswith("mx") and self.often(0.8):
            o[prefix + "scale"] = self.one(bitcube.choices()["scale"])
        if block == "nvfp4" and self.often(0.5):
            o[prefix + "tensor_scale"] = 1
        arrays[prefix + "x"] = self.words(source, shape, finite)

    def quantize(self, o, arrays):
        rank = self.size(3)
        axis = int(self.rng.integers(rank))
        shape = tuple(self.size(200) if i == axis else self.size(7) for i in range(rank))
        self.tensor(o, arrays, "", [f.name for f in bitcube.block_formats()],
                    self.one(["FP32", "FP32", "FP16", "BF16", "FP64", "E4M3", "E5M2", "HiF8"]), shape, axis)
        o["destination"] = self.one(["FP32", "FP16", "BF16", "FP64"])
        if self.often(0.5):
            o["back"] = self.one(ROUNDINGS)

    def matmul(self, o, arrays):
        m, k, n = self.size(20), self.size(150), self.size(24)
        o["accumulate"] = self.one(bitcube.choices()["accumulate"])
        o["accumulator"] = self.one(["FP32"] * 6 + ["S32", "S32", "U32"])
        finite = self.often(0.75)  # one NaN makes a row or a column of NaN, in which nothing can be seen
        if o["accumulator"] == "FP32" and self.often(0.5):
            for prefix, shape, axis in (("a_", (m, k), 1), ("b_", (k, n), 0)):
                self.tensor(o, arrays, prefix, ["hif4", "mxfp8-e4m3", "mxfp8-e5m2", "mxfp4", "mxfp4-e1m2"],
                            self.one(["FP32", "BF16", "FP16"]), shape, axis, finite)
        else:
            o["a_type"], o["b_type"], scaled = self.one(self.products[o["accumulator"]])
            for prefix, shape in (("a_", (m, k)), ("b_", (k, n))):
                type_ = o[prefix + "type"]
                arrays[prefix + "x"] = self.words(type_, shape, finite)
                if scaled and type_ not in ("FP16", "BF16"):
                    groups = -(-k // (64 if type_ == "HiF4X2" else 32))
                    scales = (m, groups) if prefix == "a_" else (groups, n)
                    if type_ == "HiF4X2":
                        arrays[prefix + "scales"] = self.rng.integers(0, 1 << 32, scales, np.uint32)
                    else:
                        low, high = (110, 145) if finite else (0, 256)
                        arrays[prefix + "scales"] = self.rng.integers(low, high, scales, np.uint8)
        for name, shape in (("c", (m, n)), ("bias", (n, ))):
            if self.often(0.4):
                arrays[name] = self.words(o["accumulator"], shape, finite)
        self.post(o, arrays, m, n, self.often(0.5))

    def postprocess(self, o, arrays):
        o["accumulator"] = self.one(["FP32", "FP32", "S32", "S32", "U32"])
        rows, cols = self.size(12), self.size(140)
        arrays["x"] = self.words(o["accumulator"], (rows, cols))
        self.post(o, arrays, rows, cols, True)

    def post(self, o, arrays, rows, cols, wanted):
        """What happens to rows x cols accumulators; nothing, unless it is wanted."""
        modes = [m for m in self.modes.values()
                 if m.accumulator in (-1, self.formats[o["accumulator"]].type)]
        mode = self.one(modes) if wanted else self.modes["NoQuant"]
        o["mode"] = mode.name.decode()
        self.common(o)
        if mode.rounding_is_fixed:
            o.pop("rounding", None)
        o["saturate"] *= mode.saturation_allowed
        o["relu"] = self.one([0, 1, 2, 3]) if wanted and mode.carrier != 2 else 0
        count = cols if mode.per_column else 1
        if mode.carrier == 2:
            arrays["carriers"] = self.rng.integers(0, 16, count, np.uint64) << np.uint64(32)
        elif mode.carrier == 1:
            offsets = self.rng.integers(0, 1 << mode.offset_bits, count, np.uint64)
            arrays["carriers"] = self.fp19(count) << np.uint64(13) | offsets << np.uint64(37)
        if o["relu"] >= 2:
            alphas = self.fp19(cols if o["relu"] == 3 else 1)
            arrays["alphas"] = np.where(self.rng.random(alphas.shape) < 0.1, np.uint64(0), alphas)
        o["row_max"] = int(wanted and self.often(0.4))
        o["group_n"] = self.one([8, 16, 32, 48, 64, 80, 96, 112, 128]) if wanted and self.often(0.4) else 0
        o["max_abs"] = int(bool(o["row_max"] or o["group_n"]) and self.often(0.5))
        if o["row_max"] and self.often(0.5):
            arrays["row_max_init"] = self.words(o["accumulator"], (rows, ))
        o["packed"] = int(mode.destination == self.formats["S4X2"].type and self.often(0.5))

    def fp19(self, count):
        """Positive normal numbers of FP19, most of ordinary size."""
        exponents = self.rng.integers(*self.one([(115, 140), (115, 140), (1, 255)]), count, np.uint64)
        return exponents << np.uint64(10) | self.rng.integers(0, 1024, count, np.uint64)


# ---- Comparison ----


def guarded(function, *arguments):
    """A result, or why there is none."""
    try:
        return function(*arguments)
    except (Refused, ValueError, TypeError) as e:
        return {"refused": str(e).encode()}


def extended(call, result, s4_modes):
    """Lanes of S4 are signed numbers in NumPy, 4 bits with zeros above in C and C++."""
    o = call.options
    name = "words" if o.get("to") == "S4X2" else "d" if o.get("mode") in s4_modes and not o["packed"] else None
    if name not in result:
        return result
    lanes = np.frombuffer(result[name], np.uint8)
    if (lanes > 15).any():
        raise AssertionError(f"call {call.number}: bits above a lane of S4X2")
    return {**result, name: ((lanes ^ 8).astype(np.int8) - 8).astype(np.int8).tobytes()}


def shown(value, at):
    if value is None:
        return "nothing"
    if isinstance(value, int):
        return str(bitcube.Flags(value))
    return f"{len(value)} bytes, there {value[at:at + 8].hex(' ')}"


def differences(results):
    """A line for everything in which the four differ."""
    lines = []
    for name in sorted({name for result in results.values() for name in result}):
        values = {way: result.get(name) for way, result in results.items()}
        if name == "refused":
            lines += [f"{way} refused: {value.decode()}" for way, value in values.items() if value is not None]
            continue
        if len(set(values.values())) == 1:
            continue
        present = [v for v in values.values() if isinstance(v, bytes)]
        length = min(map(len, present), default=0)
        at = next((i for i in range(length) if len({v[i] for v in present}) > 1), length)
        groups = collections.defaultdict(list)
        for way, value in values.items():
            groups[value].append(way)
        where = f" at byte {at}" if present else ""
        lines.append(f"{name} differs{where}: " +
                     "; ".join(f"{', '.join(ways)}: {shown(value, at)}" for value, ways in groups.items()))
    return lines


def described(call):
    arrays = [f"{name}: {a.dtype}{list(a.shape)}" for name, a in call.arrays.items()]
    return f"{call.kind} " + " ".join([*(f"{k}={v}" for k, v in call.options.items()), *arrays])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--cpp", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--only", type=int)
    parser.add_argument("--plant", choices=ROUNDINGS)
    options = parser.parse_args()

    c = CInterface(options.library, options.plant)
    generator = Generator(c)
    numbers = range(options.calls) if options.only is None else [options.only]
    calls = [generator.call(options.seed, number) for number in numbers]
    s4_modes = {name for name, m in generator.modes.items() if m.destination == generator.formats["S4X2"].type}
    python = Python()
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        line = CommandLine(os.path.abspath(options.program), directory)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            runs = list(pool.map(lambda call: guarded(line.call, call), calls))
        cpp = run_cpp(options.cpp, directory, calls)
    for call, run in zip(calls, runs):
        results = {"C++": extended(call, cpp[call.number], s4_modes),
                   "C": extended(call, guarded(getattr(c, call.kind), call.options, call.arrays), s4_modes),
                   "Python": guarded(getattr(python, call.kind), call.options, call.arrays), "command line": run}
        lines = differences(results)
        if lines:
            failed += 1
            print(f"call {call.number} of seed {options.seed}: {described(call)}", *lines, sep="\n  ")
    kinds = collections.Counter(call.kind for call in calls)
    mix = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
    print(f"{len(calls)} calls of seed {options.seed} ({mix}): {failed} with differences")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
